package procfacts

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// This file reads the facts that decide about a process's rights besides its user: its namespaces and its cgroups.
// daemon/privileges.go decides.

// Namespaces are the user and PID namespaces of a process, by their inode numbers.
type Namespaces struct{ User, PID uint64 }

// Namespaces returns the namespaces of a process or thread. The caller needs the right to trace the process.
// Namespaces does not block. The error is ErrGone if there is no such process, and fs.ErrPermission if the caller
// lacks the right.
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

// Cgroups returns the path of a process in each hierarchy of cgroups, each path once. It does not block. The error is
// ErrGone if there is no such process.
func (r Root) Cgroups(pid int) ([]string, error) {
	var room [fileBuffer]byte
	data, err := readAt(unix.AT_FDCWD, r.path(pid, filepath.Join(r.LivingThread(pid), "cgroup")), room[:0], maxCgroup)
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
