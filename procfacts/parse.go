package procfacts

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
)

// status is what is taken from /proc/PID/status.
type status struct {
	tgid     int
	uid, gid uint32 // effective
	groups   []uint32
}

// parseStatus reads /proc/PID/status. The name in it is the process's own choice,
// but the kernel escapes its newlines, so no name makes a line.
func parseStatus(data []byte) (status, error) {
	var s status
	seen := 0
	for line := range bytes.Lines(data) {
		key, value, _ := bytes.Cut(line, []byte(":"))
		var err error
		switch string(key) {
		case "Tgid":
			s.tgid, err = parsePID(strings.Fields(string(value)))
			seen++
		case "Uid":
			s.uid, err = effective(strings.Fields(string(value)))
			seen++
		case "Gid":
			s.gid, err = effective(strings.Fields(string(value)))
			seen++
		case "Groups":
			s.groups, err = parseIDs(strings.Fields(string(value)))
			seen++
		}
		if err != nil {
			return status{}, fmt.Errorf("status: %s: %w", key, err)
		}
	}
	if seen != 4 {
		return status{}, errors.New("status: Tgid, Uid, Gid and Groups are not there once each")
	}
	return s, nil
}

func parsePID(fields []string) (int, error) {
	if len(fields) != 1 {
		return 0, fmt.Errorf("%d numbers instead of one", len(fields))
	}
	n, err := strconv.ParseUint(fields[0], 10, 31)
	return int(n), err
}

// effective takes the second of real, effective, saved and filesystem identity.
func effective(fields []string) (uint32, error) {
	ids, err := parseIDs(fields)
	if err != nil {
		return 0, err
	}
	if len(ids) != 4 {
		return 0, fmt.Errorf("%d numbers instead of four", len(ids))
	}
	return ids[1], nil
}

func parseIDs(fields []string) ([]uint32, error) {
	var ids []uint32
	for _, f := range fields {
		n, err := strconv.ParseUint(f, 10, 32)
		if err != nil {
			return nil, err
		}
		ids = append(ids, uint32(n))
	}
	return ids, nil
}

// joinArguments turns what /proc/PID/cmdline holds into one line of words. A process
// that rewrote its title leaves trailing NULs or none; both are as if it had not.
func joinArguments(data []byte) string {
	data = bytes.TrimRight(data, "\x00")
	return strings.ToValidUTF8(string(bytes.ReplaceAll(data, []byte{0}, []byte{' '})), "\uFFFD")
}

func cgroupOf(proc procfs.Proc) (string, error) {
	groups, err := proc.Cgroups()
	return chooseCgroup(groups), err
}

// chooseCgroup returns the path of a process that says most about it: that of
// cgroup v2; where v2 is unused (a hybrid machine, all processes in its root) the
// one of systemd's own v1 hierarchy; else the longest of v1.
func chooseCgroup(groups []procfs.Cgroup) string {
	var unified, systemd, longest string
	for _, g := range groups {
		path := strings.TrimSuffix(g.Path, " (deleted)")
		switch {
		case g.HierarchyID == 0 && len(g.Controllers) == 0:
			unified = path
		case len(g.Controllers) == 1 && g.Controllers[0] == "name=systemd":
			systemd = path
		case len(path) > len(longest):
			longest = path
		}
	}
	for _, path := range []string{unified, systemd, longest} {
		if path != "" && path != "/" {
			return path
		}
	}
	return "/"
}

// unitOf returns the innermost service or scope in a cgroup's path.
func unitOf(cgroup string) string {
	unit := ""
	for part := range strings.SplitSeq(cgroup, "/") {
		if strings.HasSuffix(part, ".service") || strings.HasSuffix(part, ".scope") {
			unit = part
		}
	}
	return unit
}

// containerIDLen is how many hexadecimal digits docker, podman, containerd and CRI-O give a container.
const containerIDLen = 64

// containerOf returns the innermost container identity in a cgroup's path:
// /docker/ID, docker-ID.scope, libpod-ID.scope, cri-containerd-ID.scope, crio-ID and the like.
func containerOf(cgroup string) string {
	id := ""
	for part := range strings.SplitSeq(cgroup, "/") {
		part = strings.TrimSuffix(part, ".scope")
		if i := strings.LastIndexAny(part, "-:_"); i >= 0 {
			part = part[i+1:]
		}
		if len(part) == containerIDLen && strings.Trim(part, "0123456789abcdef") == "" {
			id = part
		}
	}
	return id
}

// findMapping looks in /proc/PID/maps for a mapping of an inode by a name.
// A memfd's mapping is called "/memfd:NAME (deleted)".
func findMapping(r io.Reader, inode uint64, name string) (bool, error) {
	want := "/memfd:" + name + " (deleted)"
	scan := bufio.NewScanner(r)
	for scan.Scan() {
		// address permissions offset device inode   path
		rest := scan.Text()
		var number string
		for range 5 {
			number, rest, _ = strings.Cut(strings.TrimLeft(rest, " "), " ")
		}
		n, err := strconv.ParseUint(number, 10, 64)
		if err == nil && n == inode && strings.TrimLeft(rest, " ") == want {
			return true, nil
		}
	}
	return false, scan.Err()
}
