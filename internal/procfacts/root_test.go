package procfacts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Facts that the kernel keeps itself (stat, status, mounts) are read correctly, whatever name a process gives itself.
// The tests use folders in the form of /proc, and their own process. parse_test.go tests the other texts.

// root returns a machine with these files.
func root(t *testing.T, files map[string]string) Root {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return Root(dir)
}

// statEnd is the part of a process's stat after the start time.
const statEnd = " 1000 200 18446744073709551615 1 2 3 4 5 0 0 0 0 0 0 0 17 0 0 0 0 0 0 1 2 3 4 5 6 7 0\n"

// TestStat: the start time and the parent are found for any name of a process.
func TestStat(t *testing.T) {
	const tail = " S 4000 4711 4711 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987654" + statEnd
	for _, name := range []string{"a", "a b", "a) b", "(a) (b) S 99)", "x\n", ""} {
		r := root(t, map[string]string{"4711/stat": "4711 (" + name + ")" + tail})
		if got, err := r.StartTicks(4711); got != 987654 || err != nil {
			t.Errorf("%q: started at %d, %v", name, got, err)
		}
		if got, err := r.Parent(4711); got != 4000 || err != nil {
			t.Errorf("%q: below %d, %v", name, got, err)
		}
	}
	for _, text := range []string{"", "1 (x", "1 (x) S 1 2"} {
		if got, err := root(t, map[string]string{"1/stat": text}).StartTicks(1); err == nil || errors.Is(err, ErrGone) {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	if _, err := root(t, nil).StartTicks(1); !errors.Is(err, ErrGone) {
		t.Errorf("a process that is not there: %v", err)
	}
}

// TestOwnProcess: the facts about the test's own process are correct.
func TestOwnProcess(t *testing.T) {
	pid := os.Getpid()
	arguments, err := Here.Arguments(pid)
	if fmt.Sprint(arguments) != fmt.Sprint(os.Args) || err != nil {
		t.Errorf("arguments %q, %v, want %q", arguments, err, os.Args)
	}
	if parent, err := Here.Parent(pid); parent != os.Getppid() || err != nil {
		t.Errorf("parent %d, %v", parent, err)
	}
	if uid, groups, err := Here.Owner(pid); int(uid) != os.Geteuid() || len(groups) == 0 || int(groups[len(groups)-1]) != os.Getegid() || err != nil {
		t.Errorf("owner %d %d, %v", uid, groups, err)
	}
	program, _ := os.Executable()
	if exe, err := Here.Executable(pid); exe != program || err != nil {
		t.Errorf("program %s, %v, want %s", exe, err, program)
	}
	for _, absent := range []int{0, -1, 1 << 29} {
		_, err := Here.Arguments(absent)
		_, other := Here.Environ(absent)
		if !errors.Is(err, ErrGone) || !errors.Is(other, ErrGone) || Here.Unit(absent) != "" {
			t.Errorf("process %d: %v, %v", absent, err, other)
		}
	}
}

func TestMounts(t *testing.T) {
	r := root(t, map[string]string{"self/mountinfo": `22 1 0:21 / /proc rw shared:5 - proc proc rw
36 22 0:30 / /a\040b rw,nosuid - fuse.gpuarb gpuarb rw,user_id=0
37 36 0:31 / /a\040b rw - tmpfs no\134ne rw
38 22 0:32 /sub /c\777\1 rw shared:1 master:2 - ext4 /dev/sda1 rw
`})
	want := []Mount{{"/proc", "proc", "proc", "/", "0:21"}, {"/a b", "fuse.gpuarb", "gpuarb", "/", "0:30"}, {"/a b", "tmpfs", `no\ne`, "/", "0:31"}, {`/c\777\1`, "ext4", "/dev/sda1", "/sub", "0:32"}}
	if got, err := r.Mounts(); fmt.Sprint(got) != fmt.Sprint(want) || err != nil {
		t.Errorf("%v, %v\nwant %v", got, err, want)
	}
	if got, err := root(t, map[string]string{"self/mountinfo": "rubbish\n"}).Mounts(); err == nil {
		t.Errorf("rubbish is taken for %v", got)
	}
	if got, err := Here.Mounts(); len(got) == 0 || err != nil {
		t.Errorf("this machine has no mounts: %v", err)
	}
}

// FuzzUnescape: decoding any name does not panic, and never makes the name longer.
func FuzzUnescape(f *testing.F) {
	f.Add(`a\040b`)
	f.Add(`\`)
	f.Fuzz(func(t *testing.T, text string) {
		if got := escaped.Replace(text); len(got) > len(text) {
			t.Errorf("%q: %q", text, got)
		}
	})
}

// FuzzStat: no name of a process hides its start time.
func FuzzStat(f *testing.F) {
	f.Add([]byte("a) b) S 1 2"), uint64(1))
	f.Fuzz(func(t *testing.T, name []byte, start uint64) {
		r := root(t, map[string]string{"7/stat": fmt.Sprintf("7 (%s) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 %d"+statEnd, name, start)})
		if got, err := r.StartTicks(7); err != nil || got != start {
			t.Fatalf("%q: %d, %v", name, got, err)
		}
	})
}
