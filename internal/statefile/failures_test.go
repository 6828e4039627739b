package statefile

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The next daemon learns how often the daemon has panicked, and whose request it was applying. file_test.go tests the
// state itself.

// TestFailures checks that the next daemon finds the failures and the process whose request was being applied. It
// also checks that HasNew reports each failure once, and that an invalid file is set aside.
func TestFailures(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	open := func() *Failures {
		t.Helper()
		f, _, err := OpenFailures(path)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	f := open()
	if f.HasNew() || len(f.Last()) != 0 {
		t.Error("a new file has failures")
	}
	f.Apply(7, 70)
	for i := range mostFailures + 3 {
		f.Add(Failure{At: int64(i) * int64(time.Second), PID: 7, StartTicks: 70})
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f = open()
	if pid, start := f.Applying(); pid != 7 || start != 70 {
		t.Errorf("applying is %d, %d", pid, start)
	}
	if n := f.Since(mostFailures * time.Second); n != 3 || len(f.Last()) != mostFailures {
		t.Errorf("%d failures since, %d kept", n, len(f.Last()))
	}
	if !f.HasNew() || f.HasNew() {
		t.Error("the failures are not seen once")
	}
	f.Applied()
	if pid, _ := f.Applying(); pid != 0 {
		t.Errorf("applying is %d", pid)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".failures", []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	if f = open(); len(f.Last()) != 0 || f.HasNew() {
		t.Errorf("rubbish is taken for %v", f.Last())
	}
	if text, err := os.ReadFile(path + ".failures.damaged"); string(text) != "rubbish" {
		t.Errorf("it is not set aside: %q, %v", text, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
