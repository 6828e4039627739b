package accounting

import "strings"

// InCgroup reports whether a path is that of a cgroup, or lies below it. Both are paths of cgroup v2, as
// /proc/PID/cgroup has them.
func InCgroup(path, of string) bool {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(of, "/"))
	return ok && (rest == "" || rest[0] == '/')
}
