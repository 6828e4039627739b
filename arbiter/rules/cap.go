package rules

import (
	"fmt"
	"path"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// Cap is what somebody set for all programs of one user together, or for all in a cgroup and in those below it: a
// memory.max that they share, and, of a user, a streams.max that each of his leases has. It stands beside what the
// rules give: the budget is a cap on these programs, whatever budgets their rules have them share.
type Cap struct {
	Of   Capped
	Name string // of the user
	Live Live
}

// Capped is whose programs a cap is for.
type Capped struct {
	UID    uint32
	Cgroup string // of cgroup v2, as /proc/PID/cgroup has it; "": it is a user's
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

// String is how people know whose programs they are.
func (c *Cap) String() string {
	if c.Of.Cgroup != "" {
		return fmt.Sprintf(wording.Cgroup, wording.Plain(c.Of.Cgroup))
	}
	return wording.User(c.Of.UID, c.Name)
}

// Memory is what all of the programs may hold on a device.
func (c *Cap) Memory(b Bounds) Memory {
	m := Unlimited()
	m.change(c.Live.of(b.Device), b)
	if m.Max == accounting.Max {
		m.MaxBy = ""
	}
	return m
}

// Streams is how many streams each of their leases may have.
func (c *Cap) Streams() Streams {
	s := Streams{Max: NoStreams, most: NoStreams}
	s.change(c.Live.streams)
	return s
}

// Unlimited reports that nothing is limited any more.
func (c *Cap) Unlimited() bool {
	for _, on := range c.Live.on {
		for _, s := range [...]setting[accounting.Size]{on.max.forced, on.max.own} {
			if s.value != nil && !s.value.Max {
				return false
			}
		}
	}
	return c.Streams().Max == NoStreams
}

// lower lowers the streams of a lease to what its user's may have.
func (c *Cap) lower(s *Streams) {
	if c == nil {
		return
	}
	most := c.Streams()
	if most.Max < s.Max {
		s.Max, s.By = most.Max, fmt.Sprintf(wording.ByFor, most.By, wording.AllPrograms+c.String())
	}
	s.most = min(s.most, most.Max)
}
