package inventory

import (
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file checks that the death of each watched process is reported once per key, also if the process was dead
// before, and that a closed reaper leaves nothing behind. The tests kill processes that they start.

// exits collects the keys that a reaper reports.
type exits struct {
	mu   sync.Mutex
	keys []uint64
	when []time.Time
}

func (e *exits) onExit(key uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.keys = append(e.keys, key)
	e.when = append(e.when, time.Now())
}

func (e *exits) wait(t testing.TB, n int) {
	t.Helper()
	deadline := time.Now().Add(bounded.Patience)
	for {
		e.mu.Lock()
		got := len(e.keys)
		e.mu.Unlock()
		if got >= n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d exits of %d", got, n)
		}
		time.Sleep(time.Millisecond)
	}
}

func newReaper(t testing.TB) (*Reaper[uint64], *exits) {
	t.Helper()
	e := &exits{}
	r, err := NewReaper(e.onExit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r, e
}

func pidfdOf(t testing.TB, pid int) int {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func TestReaper(t *testing.T) {
	r, e := newReaper(t)
	first, second, third := bounded.Start(t, "sleep", "1000"), bounded.Start(t, "sleep", "1000"), bounded.Start(t, "sleep", "1000")
	for i, pid := range []int{first.Process.Pid, second.Process.Pid, third.Process.Pid} {
		if err := r.Add(pidfdOf(t, pid), uint64(i)<<40); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Add(pidfdOf(t, first.Process.Pid), 0); err == nil {
		t.Error("a key was taken twice")
	}
	// Watch one process under two keys, as for two sessions of one process.
	if err := r.Add(pidfdOf(t, first.Process.Pid), 77); err != nil {
		t.Fatal(err)
	}
	r.Remove(2 << 40)
	r.Remove(12345)
	_ = third.Process.Kill()
	_ = first.Process.Kill()
	e.wait(t, 2)
	_ = second.Process.Kill()
	e.wait(t, 3)
	e.mu.Lock()
	defer e.mu.Unlock()
	if last := e.keys[2]; last != 1<<40 {
		t.Errorf("keys %v", e.keys)
	}
	slices.Sort(e.keys)
	if !slices.Equal(e.keys, []uint64{0, 77, 1 << 40}) {
		t.Errorf("keys %v", e.keys)
	}
}

func TestReaperOfTheDead(t *testing.T) {
	r, e := newReaper(t)
	cmd := bounded.Start(t, "true")
	fd := pidfdOf(t, cmd.Process.Pid)
	// The process is a zombie.
	bounded.Until(t, "it is dead", func() bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n == 1 && err == nil
	})
	if err := r.Add(fd, 1); err != nil {
		t.Fatal(err)
	}
	e.wait(t, 1)
	// The process has been reaped.
	_ = cmd.Wait()
	if err := r.Add(fd, 1); err != nil {
		t.Fatal(err)
	}
	e.wait(t, 2)
}

func TestReaperErrors(t *testing.T) {
	r, _ := newReaper(t)
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, fd := range []int{-1, 1 << 20, int(null.Fd())} {
		if err := r.Add(fd, 1); err == nil {
			t.Errorf("descriptor %d was taken", fd)
		}
	}
	other, err := NewReaper(func(uint64) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	if err := other.Add(pidfdOf(t, os.Getpid()), 1); err == nil {
		t.Error("a closed reaper took one")
	}
	other.Remove(1)
}

func TestReaperLeaksNothing(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	r, err := NewReaper(func(uint64) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Add(pidfdOf(t, os.Getpid()), 1); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := goleak.Find(ignore); err != nil {
		t.Error(err)
	}
}
