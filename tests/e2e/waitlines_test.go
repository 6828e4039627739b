package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds which lines a waiting run prints: on a terminal one for each change, elsewhere the first and the last.
// The tests of cmd/gpuarb have the line that is printed once a minute.

// TestWaitLines: a run that waits to start, and a program that waits for memory, print the begin and the end of the
// wait into a file, and each change on a terminal. The change is that one of two holders ends.
func TestWaitLines(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
		Config: "schema_version = 1\n[defaults]\ncontext_reserve = 0\n"})
	for _, c := range []struct {
		what, last string
		terminal   bool
		command    []string
	}{
		{"a start", "served after", false, []string{"run", "--min", "5G", "--", "true"}},
		{"a start", "served after", true, []string{"run", "--min", "5G", "--", "true"}},
		{"an allocation", "used at most 5 GiB on GPU 0; 1 request waited ", false, []string{"run", "--wait", "--", cudaprog(t, "dlsym"), "alloc a 5G"}},
		{"an allocation", "used at most 5 GiB on GPU 0; 1 request waited ", true, []string{"run", "--wait", "--", cudaprog(t, "dlsym"), "alloc a 5G"}},
	} {
		name := fmt.Sprintf("%s, terminal: %v", c.what, c.terminal)
		rig.Eventually(t, "the jobs before are gone", func() bool { return len(m.Snapshot().Jobs) == 0 })
		first := m.Interact(m.Gpuarb("run", "--name", "one", "--", cudaprog(t, "dlsym"), "-"))
		first.Want("alloc a 3G", "ok")
		second := m.Interact(m.Gpuarb("run", "--name", "two", "--", cudaprog(t, "dlsym"), "-"))
		second.Want("alloc a 3584M", "ok")
		waits := m.Gpuarb(c.command...)
		said := stderrInto(t, c.terminal)
		waits.Stderr = said.file
		if err := waits.Start(); err != nil {
			t.Fatal(err)
		}
		said.file.Close()
		rig.Eventually(t, name+": it waits, and says so", func() bool {
			return len(m.Snapshot().Queue) == 1 && strings.Contains(said.text(), "two")
		})
		first.End()
		if c.terminal {
			rig.Eventually(t, name+": the change is printed", func() bool { return strings.Count(said.text(), "waits for") == 2 })
		} else {
			rig.Eventually(t, name+": the daemon tells the change", func() bool {
				q := m.Snapshot().Queue
				return len(q) == 1 && !strings.Contains(q[0].Text, "one")
			})
		}
		second.End()
		if err := waits.Wait(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, said.text())
		}
		want := map[bool]int{true: 2, false: 1}[c.terminal]
		if got := said.text(); strings.Count(got, "waits for") != want || strings.Count(got, c.last) != 1 {
			t.Errorf("%s: %d lines about the wait, want %d and one with %q:\n%s", name, strings.Count(got, "waits for"), want, c.last, got)
		}
	}
}

// written is a file or a terminal into which a program writes, and its text so far.
type written struct {
	file *os.File // end for the program
	text func() string
}

// stderrInto returns a terminal, or a file, for the messages of a program.
func stderrInto(t *testing.T, terminal bool) written {
	t.Helper()
	if !terminal {
		path := t.TempDir() + "/stderr"
		file, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		return written{file, func() string {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}}
	}
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(int(master.Fd()), true); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	return written{file, func() string {
		for part := make([]byte, 4096); ; {
			n, err := unix.Read(int(master.Fd()), part)
			if n > 0 {
				all.Write(part[:n])
			}
			if err != nil || n <= 0 {
				return all.String()
			}
		}
	}}
}
