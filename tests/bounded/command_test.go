package bounded

import (
	"bufio"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// These tests hold that a program which hangs fails its test with a report of its threads, and that no process outlives
// the test that started it.

// listener is a test that collects its own messages.
type listener struct {
	testing.TB
	said string
	ends []func()
}

func (l *listener) Errorf(format string, args ...any) { l.said += fmt.Sprintf(format, args...) }
func (l *listener) Helper()                           {}
func (l *listener) Cleanup(f func())                  { l.ends = append(l.ends, f) }

// TestHungProgram: a program hangs, and its child holds its output open. The test does not wait for them:
// it fails with a report of the threads that hung.
func TestHungProgram(t *testing.T) {
	l := &listener{TB: t}
	cmd := Command(l, 100*time.Millisecond, "sh", "-c", "trap '' QUIT; sleep 1000 & echo $!; wait; wait")
	out, err := cmd.Output()
	if err == nil {
		t.Error("it was waited for without an error")
	}
	for _, part := range []string{"has not ended after 100ms", "sleep 1000", "(sh) in ", "system call "} {
		if !strings.Contains(l.said, part) {
			t.Errorf("%q is missing in: %s", part, l.said)
		}
	}
	var child int
	if _, err := fmt.Sscan(string(out), &child); err != nil {
		t.Fatal(err)
	}
	gone(t, child)
}

// TestLeftBehind: processes that a test leaves behind are killed at its end, even if they outlive the program that started them.
func TestLeftBehind(t *testing.T) {
	l := &listener{TB: t}
	cmd := Command(l, Patience, "sh", "-c", "sleep 1000 >&- 2>&- & echo $!")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var child int
	if _, err := fmt.Fscan(bufio.NewReader(out), &child); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if unix.Kill(child, 0) != nil {
		t.Fatal("the child does not run")
	}
	for _, f := range l.ends {
		f()
	}
	gone(t, child)
	if l.said != "" {
		t.Errorf("the test was told: %s", l.said)
	}
}

// gone waits until a process that is not a child of this process has ended. A zombie that
// its parent has not reaped counts as ended.
func gone(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(Patience); ; time.Sleep(time.Millisecond) {
		stat := read(fmt.Sprintf("/proc/%d/stat", pid))
		if stat == "" || strings.Contains(stat, ") Z ") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("process %d still runs: %s", pid, stat)
		}
	}
}

// TestDone: Done returns true for a function that returns.
func TestDone(t *testing.T) {
	if !Done(func() {}) {
		t.Error("Done says that a returned function still runs")
	}
}
