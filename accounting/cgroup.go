package accounting

import (
	"path"
	"strings"
)

// This file compares paths of cgroups. The package arbiter and the daemon call it.

// InCgroup reports whether the path at is that of the cgroup of, or below it. Both are paths of cgroup v2 as in /proc/PID/cgroup. A path
// outside the daemon's cgroup namespace counts as the root.
func InCgroup(at, of string) bool {
	if of == "/" {
		return true
	}
	rest, ok := strings.CutPrefix(at, of)
	return ok && (rest == "" || rest[0] == '/')
}

// CgroupOf returns the cgroup of a process from its path. It is "/" if the path is unknown or not below the root that the daemon sees.
func CgroupOf(at string) string {
	if !strings.HasPrefix(at, "/") || path.Clean(at) != at || InCgroup(at, "/..") {
		return "/"
	}
	return at
}
