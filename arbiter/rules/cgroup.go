package rules

import (
	"fmt"
	"path"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// Cgroup is what somebody set for all programs in a cgroup, and in those below it: a memory.max that they share. It
// stands beside what the rules give, as [User] does.
type Cgroup struct {
	Path string // of cgroup v2, as /proc/PID/cgroup has it
	Live Live
}

// maxCgroup is how long a path can be that has a limit: in a message it ends in a NUL.
const maxCgroup = 511

// CheckCgroup tells whether a path is that of a cgroup which can have a limit: ErrRange, where it is not. The root has none,
// as in cgroup v2.
func CheckCgroup(of string) error {
	switch {
	case of == "/":
		return Wrong(ErrRange, wording.CgroupIsRoot)
	case len(of) > maxCgroup:
		return Wrong(ErrRange, wording.CgroupTooLong, maxCgroup)
	case strings.Contains(of+"/", "/./"), strings.Contains(of+"/", "/../"):
		return Wrong(ErrRange, wording.CgroupHasDots, of)
	case !strings.HasPrefix(of, "/"), path.Clean(of) != of, strings.ContainsAny(of, "\n\x00"):
		return Wrong(ErrRange, wording.CgroupIsNone, of)
	}
	return nil
}

// String is how people know the cgroup.
func (g *Cgroup) String() string { return fmt.Sprintf(wording.Cgroup, wording.Plain(g.Path)) }

// Memory is what all programs in the cgroup may hold on a device.
func (g *Cgroup) Memory(b Bounds) Memory { return g.Live.together(b) }

// Unlimited reports that nothing is limited any more.
func (g *Cgroup) Unlimited() bool { return g.Live.unlimited() }

// together is the memory.max that several programs share which somebody set live, and nothing else gives.
func (v Live) together(b Bounds) Memory {
	m := Unlimited()
	m.change(v.of(b.Device), b)
	if m.Max == accounting.Max {
		m.MaxBy = ""
	}
	return m
}

// unlimited reports that no memory.max is set.
func (v Live) unlimited() bool {
	for _, on := range v.on {
		for _, s := range [...]setting[accounting.Size]{on.max.forced, on.max.own} {
			if s.value != nil && !s.value.Max {
				return false
			}
		}
	}
	return true
}
