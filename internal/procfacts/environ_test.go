package procfacts

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// The oldest process with a variable in its environment is found, even while it executes a program, and a process
// that blocks the reading cannot prevent it. facts_test.go tests facts about known processes.

// startWith starts a program with only this environment, which lives until the test ends.
func startWith(t *testing.T, env ...string) int {
	t.Helper()
	c := exec.Command("/bin/cat")
	c.Env = env
	stdin, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close(); _ = c.Wait() })
	return c.Process.Pid
}

// TestWithEnviron: the oldest process with a variable is found. A process with another value, a longer name or no
// such variable is not.
func TestWithEnviron(t *testing.T) {
	t.Parallel()
	r := NewReader()
	uid := uint32(os.Getuid())
	variable := "GPUARB_TEST_ENVIRON=" + t.TempDir()
	startWith(t)
	startWith(t, "X"+variable, variable+"x", "Y="+variable)
	if got := r.WithEnviron(map[string]uint32{variable: uid}); len(got) != 0 {
		t.Errorf("found %v, and nobody has it", got)
	}
	first := startWith(t, "A=1", variable)
	ticks, err := r.StartTicks(first)
	if err != nil {
		t.Fatal(err)
	}
	for { // wait for the next clock tick
		last := startWith(t, variable, "B=2")
		if later, err := r.StartTicks(last); err != nil {
			t.Fatal(err)
		} else if later > ticks {
			break
		}
	}
	other := variable + "/other"
	got := r.WithEnviron(map[string]uint32{variable: uid, other: uid})
	if want := (Started{PID: first, StartTicks: ticks}); len(got) != 1 || got[variable] != want {
		t.Errorf("found %v, want %v", got, want)
	}
}

// TestWithEnvironDuringExec: a process that shows neither environment nor arguments yet is read again until it does,
// any number of times within environPatience.
func TestWithEnvironDuringExec(t *testing.T) {
	const variable, passes = "GPUARB_TEST_ENVIRON=1", 20
	for _, becomes := range []string{variable + "\x00", ""} {
		r := NewReader()
		r.Root = root(t, map[string]string{
			"7/stat":    "7 (sh) S 1 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987654" + statEnd,
			"7/environ": "", "7/cmdline": "",
		})
		rests := 0
		got := r.withEnviron(map[string]uint32{variable: uint32(os.Getuid())}, func() bool {
			rests++
			if rests == passes {
				err := errors.Join(os.WriteFile(filepath.Join(string(r.Root), "7/environ"), []byte(becomes), 0o600),
					os.WriteFile(filepath.Join(string(r.Root), "7/cmdline"), []byte("cat\x00"), 0o600))
				if err != nil {
					t.Fatal(err)
				}
			}
			return rests < 10*passes
		})
		if found := got[variable].PID == 7; found != (becomes != "") || rests != passes {
			t.Errorf("environment %q: found %v after %d rests, want %d", becomes, got, rests, passes)
		}
	}
}

// TestWithEnvironAtEndOfExec: a process is found even if its exec ends just after its environment was read as empty.
func TestWithEnvironAtEndOfExec(t *testing.T) {
	const variable = "GPUARB_TEST_ENVIRON=1"
	r := NewReader()
	r.Root = root(t, map[string]string{
		"7/stat":    "7 (sh) S 1 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987654" + statEnd,
		"7/environ": "",
	})
	if err := unix.Mkfifo(r.path(7, "cmdline"), 0o600); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		line, err := os.OpenFile(r.path(7, "cmdline"), os.O_WRONLY, 0) // blocks until the reader opens it, after it has read the environment
		if err == nil {
			err = os.WriteFile(r.path(7, "environ"), []byte(variable+"\x00"), 0o600)
			_, why := line.WriteString("cat\x00")
			err = errors.Join(err, why, line.Close())
		}
		ended <- err
	}()
	got := r.withEnviron(map[string]uint32{variable: uint32(os.Getuid())}, func() bool { return true })
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if got[variable].PID != 7 {
		t.Errorf("found %v", got)
	}
}

// TestWithEnvironOnBusyMachine: if processes start and end all the time, a few passes suffice to find that none has
// the variable.
func TestWithEnvironOnBusyMachine(t *testing.T) {
	r := NewReader()
	r.Root = root(t, map[string]string{"7/environ": "", "7/cmdline": ""}) // no stat file: the process has ended meanwhile
	rests := 0
	got := r.withEnviron(map[string]uint32{"GPUARB_TEST_ENVIRON=1": uint32(os.Getuid())}, func() bool { rests++; return rests < 100 })
	if len(got) != 0 || rests != environPasses-1 {
		t.Errorf("found %v after %d rests, want none after %d", got, rests, environPasses-1)
	}
}

// TestWithEnvironOfBlockedProcess: a process that blocks the reading of its memory does not prevent the search in
// other processes.
func TestWithEnvironOfBlockedProcess(t *testing.T) {
	const variable = "GPUARB_TEST_ENVIRON=1"
	for _, held := range []string{"environ", "cmdline"} {
		r := NewReader()
		r.Root = root(t, map[string]string{"7/environ": "", "7/cmdline": "", "7/stat": "7 (x) S 1 1 1 0 -1 0 " + strings.Repeat("0 ", 40),
			"8/environ": variable + "\x00", "8/cmdline": "x", "8/stat": "8 (x) S 1 1 1 0 -1 0 " + strings.Repeat("0 ", 40)})
		fifo := r.path(7, held)
		if err := errors.Join(os.Remove(fifo), unix.Mkfifo(fifo, 0o600)); err != nil {
			t.Fatal(err)
		}
		other := "GPUARB_TEST_ENVIRON=2" // no process has it
		rests := 0
		got := r.withEnviron(map[string]uint32{variable: uint32(os.Getuid()), other: uint32(os.Getuid())}, func() bool { rests++; return rests < 3 })
		if got[variable].PID != 8 || len(got) != 1 {
			t.Errorf("%s is held: found %v", held, got)
		}
		bounded.Until(t, "who waits there is let go", func() bool {
			if w, err := os.OpenFile(fifo, os.O_RDWR|unix.O_NONBLOCK, 0); err == nil {
				_ = w.Close()
			}
			return len(r.slow) == 0
		})
	}
}
