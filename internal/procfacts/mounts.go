package procfacts

import (
	"strings"

	"github.com/prometheus/procfs"
)

// Mount is a mounted filesystem, a line of /proc/self/mountinfo.
type Mount struct {
	Point  string
	Type   string
	Source string
	Root   string // folder of the filesystem that is mounted at Point; "/": all of it
	Device string // of the filesystem, MAJOR:MINOR; another one may have it when this one has gone
}

// Mounts lists what is mounted. Of two at one point the later one lies upon the other.
func (r Root) Mounts() ([]Mount, error) {
	all, err := procfs.NewFS(string(r))
	if err != nil {
		return nil, err
	}
	lines, err := all.GetMounts()
	if err != nil {
		return nil, err
	}
	mounts := make([]Mount, len(lines))
	for i, line := range lines {
		mounts[i] = Mount{Point: escaped.Replace(line.MountPoint), Type: line.FSType, Source: escaped.Replace(line.Source), Root: escaped.Replace(line.Root),
			Device: line.MajorMinorVer}
	}
	return mounts, nil
}

// escaped is how the kernel spells what would end a name in such a line.
var escaped = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#")
