package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds which lines a waiting run prints: on a terminal one for each change, elsewhere the first and the last.
// The tests of cmd/gpuarb have the line that is printed once a minute.

// TestWaitLines: runs that wait to start, and programs that wait for memory, print the begin and the end of the wait
// into a file, and each change on a terminal. The change is that one of two holders ends. The daemon tells both runs at
// the same time, so that the file has had its chance when the terminal shows the change.
func TestWaitLines(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
		Config: "schema_version = 1\n[defaults]\ncontext_reserve = 0\n"})
	for what, c := range map[string]struct {
		last    string
		command []string
	}{
		"a start":       {"served after", []string{"run", "--min", "5G", "--", "true"}},
		"an allocation": {"used at most 5 GiB on GPU 0; 1 request waited ", []string{"run", "--wait", "--", cudaprog(t, "dlsym"), "alloc a 5G"}},
	} {
		rig.Eventually(t, "the jobs before are gone", func() bool { return len(m.Snapshot().Jobs) == 0 })
		first := m.Interact(m.Gpuarb("run", "--name", "one", "--", cudaprog(t, "dlsym"), "-"))
		first.Want("alloc a 3G", "ok")
		second := m.Interact(m.Gpuarb("run", "--name", "two", "--", cudaprog(t, "dlsym"), "-"))
		second.Want("alloc a 3584M", "ok")
		var runs []*exec.Cmd
		var said []written
		for i, terminal := range []bool{true, false} {
			run := m.Gpuarb(c.command...)
			into := stderrInto(t, terminal)
			run.Stderr = into.file
			if err := run.Start(); err != nil {
				t.Fatal(err)
			}
			into.file.Close()
			runs, said = append(runs, run), append(said, into)
			rig.Eventually(t, what+": it waits, and says so", func() bool {
				return len(m.Snapshot().Queue) == i+1 && strings.Contains(into.text(), "two")
			})
		}
		first.End()
		rig.Eventually(t, what+": the terminal shows the change", func() bool { return strings.Count(said[0].text(), "waits for") == 2 })
		second.End()
		for i, run := range runs {
			if err := run.Wait(); err != nil {
				t.Errorf("%s: %v\n%s", what, err, said[i].text())
			}
		}
		for i, want := range []int{2, 1} {
			got := said[i].text()
			if n := strings.Count(got, "waits for"); n < want || want == 1 && n > 1 || strings.Count(got, c.last) != 1 {
				t.Errorf("%s, %s: %d lines about the wait, want %d and one with %q:\n%s", what, []string{"terminal", "file"}[i], n, want, c.last, got)
			}
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
