package tree

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file has the whole test: the reference's table, the walk of each user, and the checks of each file.

// UIDs of the user whose programs run, and of a user without programs.
const (
	owner    = 61101
	stranger = 61102
)

// row is a row of the reference.
type row struct {
	path  string
	mode  os.FileMode
	uid   int
	holds string
	seen  bool
}

// reference reads the table of docs/reference/gpufs.md.
func reference(t *testing.T) map[string]*row {
	t.Helper()
	page, err := os.ReadFile("../../docs/reference/gpufs.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]*row{}
	line := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (0[0-7]{3}) \\| (DAEMON|OWNER) \\| (.+) \\|$")
	for _, m := range line.FindAllStringSubmatch(string(page), -1) {
		mode, err := strconv.ParseUint(m[2], 8, 32)
		if err != nil || rows[m[1]] != nil {
			t.Fatalf("%q: %v", m[0], err)
		}
		uid := os.Getuid()
		if m[3] == "OWNER" {
			uid = owner
		}
		rows[m[1]] = &row{path: m[1], mode: os.FileMode(mode), uid: uid, holds: m[4]}
	}
	if len(rows) == 0 {
		t.Fatal("the page has no such table")
	}
	return rows
}

// formats are the formats that the reference names, as expressions.
var formats = map[string]*regexp.Regexp{
	"bytes":           regexp.MustCompile(`^(0|[1-9]\d*)\n$`),
	"number":          regexp.MustCompile(`^(0|[1-9]\d*)\n$`),
	"bytes or `max`":  regexp.MustCompile(`^(0|[1-9]\d*|max)\n$`),
	"number or `max`": regexp.MustCompile(`^(0|[1-9]\d*|max)\n$`),
	"numbers":         regexp.MustCompile(`^([1-9]\d*\n)*$`),
	"word":            regexp.MustCompile(`^[a-z]+\n$`),
	"text":            regexp.MustCompile(`^[[:graph:]]([[:print:]]*[[:graph:]])?\n$`),
	"keys":            regexp.MustCompile(`^([a-z][a-z0-9_.]* \d+\n)+$`),
	"metrics":         regexp.MustCompile(`^(# (HELP|TYPE) [a-z_]+ .+\n|[a-z_]+(\{.+\})? \S+\n)+$`),
	"TOML":            regexp.MustCompile(`^# from "/.*\n(# from .*\n)*schema_version = 1\n([a-z].* = .*\n)*\n\[defaults\]\n([a-z].* = .*\n)+(\n\[+[a-z]+\]+\n([a-z].* = .*\n)*)*$`),
	"pressure": regexp.MustCompile(`^some avg10=\d+\.\d\d avg60=\d+\.\d\d avg300=\d+\.\d\d total=\d+\n` +
		`full avg10=\d+\.\d\d avg60=\d+\.\d\d avg300=\d+\.\d\d total=\d+\n$`),
}

// wrong says how the content of a file violates its format; "": it is right.
func wrong(holds, text string) string {
	switch format := formats[holds]; {
	case format != nil && !format.MatchString(text):
		return "is no " + holds
	case format != nil:
	case holds == "table":
		return wrongTable(text)
	case holds == "JSON":
		if !json.Valid([]byte(text)) {
			return "is no JSON"
		}
	case holds == "JSON lines":
		for line := range strings.Lines(text) {
			if !json.Valid([]byte(line)) || !strings.HasSuffix(line, "\n") {
				return "has a line that is no JSON"
			}
		}
	default:
		return "holds what the test does not know"
	}
	return ""
}

func wrongTable(text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if !regexp.MustCompile(`^ *[A-Z-]+( +[A-Z-]+)*$`).MatchString(lines[0]) || !strings.HasSuffix(text, "\n") {
		return "has no line of names"
	}
	for _, l := range lines[1:] {
		if len(strings.Fields(l)) < len(strings.Fields(lines[0])) {
			return "has a line without all columns"
		}
	}
	return ""
}

// pattern returns the reference's path for a file, with placeholders for names.
func pattern(path string) string {
	parts := strings.Split(path, "/")
	if files := []string{"memory.max", "memory.current", "streams.current", "cgroup.procs"}; parts[0] == "cgroups" && len(parts) > 1 {
		last := parts[len(parts)-1]
		switch isFile := slices.Contains(files, last); {
		case isFile && len(parts) == 2:
			return path
		case isFile:
			return "cgroups/PATH/" + last
		}
		return "cgroups/PATH"
	}
	for i, what := range parts[:len(parts)-1] {
		if name := map[string]string{"devices": "N", "processes": "PID", "jobs": "ID", "users": "NAME"}[what]; name != "" {
			parts[i+1] = name
		}
	}
	return strings.Join(parts, "/")
}

// walker is a user who walks the tree.
type walker struct {
	t    *testing.T
	who  string
	uid  int
	gid  int // the GID that each file must have
	root string
	rows map[string]*row
	n    int // files seen so far
}

// as runs f as the walker, in a thread that ends with it. Only that thread changes its user: the kernel checks
// the rights of the calling thread.
func (w *walker) as(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		for _, call := range [][4]uintptr{{unix.SYS_SETGROUPS}, {unix.SYS_SETRESGID, uintptr(w.uid), uintptr(w.uid), uintptr(w.uid)},
			{unix.SYS_SETRESUID, uintptr(w.uid), uintptr(w.uid), uintptr(w.uid)}} {
			if _, _, errno := unix.RawSyscall(call[0], call[1], call[2], call[3]); errno != 0 {
				w.t.Errorf("%s: %v", w.who, errno)
				return
			}
		}
		f()
	}()
	<-done
}

// walk checks a file, and all files below it.
func (w *walker) walk(path string) {
	r := w.rows[pattern(path)]
	if r == nil {
		w.t.Errorf("%s is not in the reference", path)
		return
	}
	r.seen = true
	w.n++
	w.stat(path, r)
	switch r.holds {
	case "folder":
		w.folder(path)
	case "link":
	default:
		w.file(path, r)
	}
}

func (w *walker) stat(path string, r *row) {
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(w.root, path), &st); err != nil {
		w.t.Errorf("%s: %s: %v", w.who, path, err)
		return
	}
	kind := map[string]uint32{"folder": unix.S_IFDIR, "link": unix.S_IFLNK}[r.holds]
	if kind == 0 {
		kind = unix.S_IFREG
	}
	if st.Mode != kind|uint32(r.mode) || int(st.Uid) != r.uid || int(st.Gid) != w.gid || (st.Size == 0) == (r.holds == "JSON lines") {
		w.t.Errorf("%s: mode %#o of %d:%d, %d bytes; want %#o of %d:%d, and no bytes but of what grows", path, st.Mode, st.Uid, st.Gid, st.Size,
			kind|uint32(r.mode), r.uid, w.gid)
	}
}

func (w *walker) folder(path string) {
	entries, err := os.ReadDir(filepath.Join(w.root, path))
	if err != nil {
		w.t.Errorf("%s: %v", w.who, err)
	}
	for _, e := range entries {
		w.walk(filepath.Join(path, e.Name()))
	}
	at := filepath.Join(w.root, path)
	w.refused("a new folder in "+path, unix.Mkdir(at+"/new", 0o755))
	w.refused("a new file in "+path, unix.Mknod(at+"/new", unix.S_IFREG|0o644, 0))
	if _, err := unix.Open(at, unix.O_WRONLY|unix.O_CLOEXEC, 0); !errors.Is(err, unix.EISDIR) {
		w.t.Errorf("%s: %s opened for writing: %v", w.who, path, err)
	}
}

func (w *walker) refused(what string, err error) {
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
		w.t.Errorf("%s: %s: %v", w.who, what, err)
	}
}

func (w *walker) file(path string, r *row) {
	at := filepath.Join(w.root, path)
	text, err := os.ReadFile(at)
	if w.allowed(r, 0o4) {
		if err != nil {
			w.t.Errorf("%s: %v", w.who, err)
		} else if said := wrong(r.holds, string(text)); said != "" {
			w.t.Errorf("%s: %s %s: %q", w.who, path, said, text)
		}
	} else if !errors.Is(err, unix.EACCES) {
		w.t.Errorf("%s: %s was read: %v", w.who, path, err)
	}
	w.write(at, path, r)
	w.refused(path+" removed", unix.Unlink(at))
	w.refused(path+" renamed", unix.Rename(at, at+"x"))
	w.refused(path+" given away", unix.Chown(at, w.uid, w.uid))
	w.refused(path+" opened to everybody", unix.Chmod(at, 0o666))
}

// allowed reports whether a file's mode allows the walker the access `what`: 4 is reading, 2 is writing. Root may do what any of owner, group and others may.
func (w *walker) allowed(r *row, what os.FileMode) bool {
	switch w.uid {
	case 0:
		return r.mode&(what<<6|what<<3|what) != 0
	case r.uid:
		return r.mode&(what<<6) != 0
	}
	return r.mode&what != 0
}

func (w *walker) write(at, path string, r *row) {
	for _, flags := range []int{unix.O_WRONLY, unix.O_RDWR, unix.O_WRONLY | unix.O_APPEND, unix.O_WRONLY | unix.O_TRUNC} {
		fd, err := unix.Open(at, flags|unix.O_CLOEXEC, 0)
		if !w.allowed(r, 0o2) {
			if !errors.Is(err, unix.EACCES) {
				w.t.Errorf("%s: %s opened with %#x: %v", w.who, path, flags, err)
			}
			continue
		}
		if err != nil {
			w.t.Errorf("%s: %s opened with %#x: %v", w.who, path, flags, err)
		}
		if err != nil || flags != unix.O_RDWR { // write through one descriptor only: a user may make only a hundred changes in a second
			_ = unix.Close(fd)
			continue
		}
		if _, err := unix.Write(fd, []byte("nonsense\n")); !errors.Is(err, unix.EINVAL) {
			w.t.Errorf("%s: nonsense written to %s: %v", w.who, path, err)
		}
		if _, err := unix.Write(fd, make([]byte, 4097)); !errors.Is(err, unix.E2BIG) {
			w.t.Errorf("%s: 4097 bytes written to %s: %v", w.who, path, err)
		}
		_ = unix.Close(fd)
	}
}

// TestWholeTree walks the tree as root, as the owner and as a stranger. Programs of one user run and wait and have names, so that each kind of file exists.
func TestWholeTree(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("the test must run as root to become other users")
	}
	m := rig.New(t, rig.Options{Devices: "400M,200M", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: `schema_version = 1
[[rule]]
name = "guests"
match.user = "61101"
scope = "user"
memory.max = "300M"
`})
	u := m.OtherUser(owner)
	holds := m.Interact(m.Cgroup().In(u.Gpuarb("run", "--name", "two words", "--", u.Program("cudaprog-dlsym"))))
	holds.Want("alloc a 150M", "ok")
	holds.Want("stream s", "ok")
	waits := m.Interact(u.Gpuarb("run", "--wait", "--", u.Program("cudaprog-dlsym")))
	waits.Want("alloc a 100M", "ok")
	waits.Tell("alloc b 100M")
	rig.Eventually(t, "a request waits", func() bool { return len(m.Snapshot().Queue) == 1 })
	before := limits(m)

	rows := reference(t)
	for _, w := range []*walker{{who: "root", uid: 0}, {who: "the owner", uid: owner}, {who: "a stranger", uid: stranger}} {
		w.t, w.gid, w.root, w.rows = t, os.Getgid(), m.Mount, rows
		w.as(func() { w.walk(".") })
		if w.n < len(rows) {
			t.Errorf("%s saw %d files, and the reference has %d", w.who, w.n, len(rows))
		}
	}
	for _, r := range rows {
		if !r.seen {
			t.Errorf("%s is in the reference, and not there", r.path)
		}
	}
	if after := limits(m); after != before {
		t.Errorf("a refused call has changed something: %s, and before %s", after, before)
	}
	holds.Want("free a", "ok")
	waits.Expect("alloc b ok")
	waits.End()
	holds.End()
}

// limits describes all values that a write could change: usage and limits of each lease, and slots of each device.
func limits(m *rig.Machine) (text string) {
	for _, l := range m.Snapshot().Leases {
		text += fmt.Sprintln(l.PID, l.Device, l.Used, l.Budget, l.Min, l.StreamsMax, l.Shared)
	}
	for _, d := range m.Snapshot().Devices {
		text += m.Read(fmt.Sprintf("devices/%d/slots.max", d.Index))
	}
	return text
}
