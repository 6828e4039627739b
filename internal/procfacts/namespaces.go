package procfacts

import (
	"bytes"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// This file reads what decides, together with its user, which rights a process has: its namespaces, and the cgroups that it runs
// in. daemon/privileges.go decides.

// Namespaces are the user and PID namespaces of a process, by the inodes that the kernel gives them.
type Namespaces struct{ User, PID uint64 }

// Namespaces reads which namespaces a process or thread is in. The caller needs the right to trace it. It does not block.
// The error is ErrGone if there is no such process, and fs.ErrPermission if the caller may not know.
func (r Root) Namespaces(pid int) (n Namespaces, err error) {
	for name, inode := range map[string]*uint64{"ns/user": &n.User, "ns/pid": &n.PID} {
		var st unix.Stat_t
		if err := unix.Stat(r.path(pid, name), &st); err != nil {
			return Namespaces{}, ofProcess(pid, &os.PathError{Op: "stat", Path: name, Err: err})
		}
		*inode = st.Ino
	}
	return n, nil
}

// Cgroups reads the path of a process in each hierarchy of cgroups, each path once. It does not block. The error is ErrGone if
// there is no such process.
func (r Root) Cgroups(pid int) ([]string, error) {
	var room [fileRoom]byte
	data, err := readAt(unix.AT_FDCWD, r.path(pid, "cgroup"), room[:0], maxCgroup)
	if err != nil {
		return nil, ofProcess(pid, err)
	}
	return allCgroups(data), nil
}

// allCgroups returns the paths in /proc/PID/cgroup, each once.
func allCgroups(data []byte) (paths []string) {
	for line, rest := nextLine(data); line != nil; line, rest = nextLine(rest) {
		_, line, _ := bytes.Cut(line, []byte(":"))
		_, path, ok := bytes.Cut(line, []byte(":"))
		if at := string(bytes.TrimSuffix(path, []byte(" (deleted)"))); ok && !slices.Contains(paths, at) {
			paths = append(paths, at)
		}
	}
	return paths
}
