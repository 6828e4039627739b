package procfacts

// This file parses the text of files below /proc/PID. It reads no files itself; root.go and facts.go call it.

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// status is the used part of /proc/PID/status.
type status struct {
	name     string // the kernel's name of the process
	tgid     int
	nspid    int    // 0: unknown
	uid, gid uint32 // effective
	groups   []uint32
}

// commNames decodes the kernel's spelling of characters that would end the line.
var commNames = strings.NewReplacer(`\\`, `\`, `\n`, "\n")

// parseStatus parses /proc/PID/status. The process chooses the name in it, but the kernel escapes its newlines, so
// that a name cannot fake another line.
func parseStatus(data []byte) (status, error) {
	var s status
	seen := 0
	for line, rest := nextLine(data); line != nil; line, rest = nextLine(rest) {
		key, value, _ := bytes.Cut(line, []byte(":"))
		var err error
		switch string(key) {
		case "Name":
			s.name = commNames.Replace(string(bytes.TrimPrefix(value, []byte("\t"))))
		case "Tgid":
			s.tgid, err = parsePID(strings.Fields(string(value)))
			seen++
		case "NSpid": // since Linux 4.1; the first PID is of this /proc's namespace, the last of the innermost
			if pids := strings.Fields(string(value)); len(pids) > 0 {
				s.nspid, err = parsePID(pids[len(pids)-1:])
			}
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
			return status{}, fmt.Errorf("status: %s: %w", string(key), err)
		}
	}
	if seen != 4 {
		return status{}, errors.New("status: Tgid, Uid, Gid and Groups are not there once each")
	}
	return s, nil
}

// nextLine returns the first line of a text without its end, and the rest; nil: the text is empty. Unlike bytes.Lines
// it lets the text stay on the stack.
func nextLine(text []byte) (line, rest []byte) {
	if len(text) == 0 {
		return nil, nil
	}
	line, rest, _ = bytes.Cut(text, []byte("\n"))
	return line, rest
}

// parsePID parses a field with exactly one number.
func parsePID(fields []string) (int, error) {
	if len(fields) != 1 {
		return 0, fmt.Errorf("%d numbers instead of one", len(fields))
	}
	n, err := strconv.ParseUint(fields[0], 10, 31)
	return int(n), err
}

// effective returns the second of the real, effective, saved and filesystem IDs.
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

// parseIDs parses the numbers of users or groups.
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

// joinArguments converts /proc/PID/cmdline to one line of text. It drops the NULs at the end, which a process that
// rewrote its title may have or lack.
func joinArguments(data []byte) string {
	data = bytes.TrimRight(data, "\x00")
	return strings.ToValidUTF8(string(bytes.ReplaceAll(data, []byte{0}, []byte{' '})), "\uFFFD")
}

// cgroupsOf returns the paths of a process in all hierarchies in /proc/PID/cgroup, each once. The first one describes
// the process best: the path in cgroup v2. If v2 is unused (on a hybrid machine all processes are in its root), it is
// the path in systemd's own v1 hierarchy, or else the longest path in v1. Roots of hierarchies are omitted; if all
// paths are roots, it returns "/".
func cgroupsOf(data []byte) (paths []string) {
	var unified, systemd, longest []byte
	var others [][]byte
	for line, rest := nextLine(data); line != nil; line, rest = nextLine(rest) {
		number, line, _ := bytes.Cut(line, []byte(":"))
		controllers, path, _ := bytes.Cut(line, []byte(":"))
		path = bytes.TrimSuffix(path, []byte(" (deleted)"))
		others = append(others, path)
		switch {
		case string(number) == "0" && len(controllers) == 0:
			unified = path
		case string(controllers) == "name=systemd":
			systemd = path
		case len(path) > len(longest):
			longest = path
		}
	}
	for _, path := range append([][]byte{unified, systemd, longest}, others...) {
		if len(path) > 0 && string(path) != "/" && !slices.Contains(paths, string(path)) {
			paths = append(paths, string(path))
		}
	}
	if paths == nil {
		return []string{"/"}
	}
	return paths
}

// firstOf calls is with one path after another, and returns its first result that is not empty.
func firstOf(paths []string, is func(string) string) string {
	for _, path := range paths {
		if found := is(path); found != "" {
			return found
		}
	}
	return ""
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

// containerIDLen is the number of hexadecimal digits in a container's identity with docker, podman, containerd and
// CRI-O.
const containerIDLen = 64

// containerOf returns the innermost container's identity in a cgroup's path: /docker/ID, docker-ID.scope,
// libpod-ID.scope, cri-containerd-ID.scope, crio-ID and similar forms.
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

// findMapping searches /proc/PID/maps for a mapping with an inode and a memfd's name. The kernel shows such a mapping
// as "/memfd:NAME (deleted)".
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
