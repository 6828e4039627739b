package procfacts

// This file lists mounted filesystems. gpufs, the daemon and the command doctor call it to find mount points.

import (
	"strings"

	"github.com/prometheus/procfs"
)

// Mount is a mounted filesystem, a line of /proc/self/mountinfo.
type Mount struct {
	Point  string
	Type   string
	Source string
	Root   string // the mounted folder of the filesystem; "/": all of it
	Device string // MAJOR:MINOR of the filesystem, which a later filesystem may reuse
}

// Mounts lists the mounted filesystems. Of two at one point, the later covers the earlier.
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

// escaped decodes the kernel's spelling of characters that would end a name in such a line.
var escaped = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#")
