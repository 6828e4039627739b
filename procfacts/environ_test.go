package procfacts

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// startWith starts a program that lives until the test ends, with this environment alone.
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

// TestWithEnviron: of those that were started with a variable the oldest is found, and
// nobody who has another value, a longer name, or none.
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
	for { // until the clock has gone on
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

// TestWithEnvironOfOneInExec: a process that shows neither environment nor arguments yet is
// looked at until it does, however often that is, but no longer than there is time.
func TestWithEnvironOfOneInExec(t *testing.T) {
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

// TestWithEnvironAmongMany: where processes always come and go it is known after a few passes
// that none has the variable.
func TestWithEnvironAmongMany(t *testing.T) {
	r := NewReader()
	r.Root = root(t, map[string]string{"7/environ": "", "7/cmdline": ""}) // its stat is gone
	rests := 0
	got := r.withEnviron(map[string]uint32{"GPUARB_TEST_ENVIRON=1": uint32(os.Getuid())}, func() bool { rests++; return rests < 100 })
	if len(got) != 0 || rests != environPasses-1 {
		t.Errorf("found %v after %d rests, want none after %d", got, rests, environPasses-1)
	}
}
