package procfacts

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// This file reads facts that show the job of a process without a lease: its environment, its mappings, its parents,
// and the oldest process of its cgroup. daemon/bypass.go calls it for processes that use a device without a lease.

const (
	// maxParents bounds the number of parents that are followed.
	maxParents = 64
	// maxProcs bounds the bytes of a cgroup's list of processes; a cgroup with a longer list gives no answer.
	maxProcs = 16 << 10
	// maxMaps bounds the bytes of a process's list of mappings that are read.
	maxMaps = 4 << 20
)

// Variables returns the values of the named variables in the environment with which a process was started. The map
// lacks variables that the process does not have. nil: the environment cannot be read, or not in time.
func (r *Reader) Variables(pid int, names ...string) map[string]string {
	text := r.readSlowly(pid, filepath.Join(r.LivingThread(pid), "environ"), maxEnviron)
	if len(text) == 0 {
		if none, err := r.hasNoEnviron(pid); err != nil || !none || unix.Access(r.path(pid, "environ"), unix.R_OK) != nil {
			return nil
		}
	}
	found := map[string]string{}
	for entry := range bytes.SplitSeq(text, []byte{0}) {
		name, value, _ := bytes.Cut(entry, []byte("="))
		if slices.Contains(names, string(name)) {
			found[string(name)] = string(value)
		}
	}
	return found
}

// HasMapped reports whether a process has a file of that name mapped, in any folder, even if the file was deleted or
// replaced since. known is false if the mappings cannot be read, or not in time.
func (r *Reader) HasMapped(pid int, name string) (mapped, known bool) {
	mapped, err := withTimeout(r, pid, func() (mapped bool, err error) {
		file, err := os.Open(r.path(pid, filepath.Join(r.LivingThread(pid), "maps")))
		if err != nil {
			return false, err
		}
		defer file.Close()
		scan := bufio.NewScanner(io.LimitReader(file, maxMaps))
		for scan.Scan() && !mapped {
			mapped = strings.HasSuffix(strings.TrimSuffix(scan.Text(), " (deleted)"), "/"+name)
		}
		return mapped, scan.Err()
	})
	return mapped, err == nil
}

// Parents returns the visible ancestors of a process, its own parent first, up to maxParents.
func (r Root) Parents(pid int) (parents []Started) {
	for range maxParents {
		st, err := r.stat(pid)
		if err != nil || st.PPID == 0 {
			return parents
		}
		above, err := r.stat(st.PPID)
		if err != nil {
			return parents
		}
		pid = st.PPID
		parents = append(parents, Started{PID: pid, StartTicks: above.Starttime})
	}
	return parents
}

// Eldest returns the oldest process of the cgroup with this folder. found is false if the list of its processes
// cannot be read, is empty, or is longer than maxProcs.
func (r Root) Eldest(folder string) (eldest Started, found bool) {
	file, err := os.Open(filepath.Join(folder, "cgroup.procs"))
	if err != nil {
		return Started{}, false
	}
	defer file.Close()
	list, err := io.ReadAll(io.LimitReader(file, maxProcs))
	if err != nil || len(list) == maxProcs {
		return Started{}, false
	}
	for line := range bytes.FieldsSeq(list) {
		pid, err := strconv.Atoi(string(line))
		if err != nil || pid <= 0 { // 0 is a process of another PID namespace
			continue
		}
		if start, err := r.StartTicks(pid); err == nil && (!found || start < eldest.StartTicks) {
			eldest, found = Started{PID: pid, StartTicks: start}, true
		}
	}
	return eldest, found
}
