package nri

import (
	"path"
	"strings"
)

// This file translates the runtime's name of a cgroup.

// cgroupPath returns the path of a container's cgroup as in /proc/PID/cgroup. With the cgroup driver cgroupfs the runtime gives that
// path; with the driver systemd it gives SLICE:PREFIX:NAME. A slice a-b.slice lies in a.slice (systemd.slice(5)).
func cgroupPath(name string) string {
	parts := strings.Split(name, ":")
	if len(parts) != 3 {
		return path.Join("/", name)
	}
	at, slice := "/", ""
	if trimmed := strings.TrimSuffix(parts[0], ".slice"); trimmed != "-" && trimmed != "" {
		for part := range strings.SplitSeq(trimmed, "-") {
			slice = strings.TrimPrefix(slice+"-"+part, "-")
			at = path.Join(at, slice+".slice")
		}
	}
	return path.Join(at, parts[1]+"-"+parts[2]+".scope")
}
