package inventory

import (
	"os"
	"os/exec"
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
	inv, err := Open(Options{SysfsRoot: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer inv.Close()
	uid := uint32(os.Getuid())
	variable := "GPUARB_TEST_ENVIRON=" + t.TempDir()
	startWith(t)
	startWith(t, "X"+variable, variable+"x", "Y="+variable)
	if got := inv.WithEnviron(map[string]uint32{variable: uid}); len(got) != 0 {
		t.Errorf("found %v, and nobody has it", got)
	}
	first := startWith(t, "A=1", variable)
	ticks, err := inv.StartTicks(first)
	if err != nil {
		t.Fatal(err)
	}
	for { // until the clock has gone on
		last := startWith(t, variable, "B=2")
		if later, err := inv.StartTicks(last); err != nil {
			t.Fatal(err)
		} else if later > ticks {
			break
		}
	}
	other := variable + "/other"
	got := inv.WithEnviron(map[string]uint32{variable: uid, other: uid})
	if want := (Started{PID: first, StartTicks: ticks}); len(got) != 1 || got[variable] != want {
		t.Errorf("found %v, want %v", got, want)
	}
}
