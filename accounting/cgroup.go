package accounting

import (
	"path"
	"strings"
)

// InCgroup reports whether a path is that of a cgroup, or lies below it. Both are paths of cgroup v2, as
// /proc/PID/cgroup has them; what is outside of the daemon's cgroup namespace is in the root.
func InCgroup(at, of string) bool {
	if of == "/" {
		return true
	}
	rest, ok := strings.CutPrefix(at, of)
	return ok && (rest == "" || rest[0] == '/')
}

// CgroupOf is the cgroup of a process by the path that is known: "/" where that is none below the root as the daemon sees it.
func CgroupOf(at string) string {
	if !strings.HasPrefix(at, "/") || path.Clean(at) != at || InCgroup(at, "/..") {
		return "/"
	}
	return at
}
