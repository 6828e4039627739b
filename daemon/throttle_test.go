package daemon

import (
	"context"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/gpufs"
	"github.com/gpuarb/gpuarb/tests/bounded"
)

// waiting is how many wait for the clock.
func (c *fakeClock) waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.timers)
}

// TestChangesOfAUserWait: of what a user writes in a loop a hundred go through in a second, whoever
// else writes, and the others one by one as the seconds pass.
func TestChangesOfAUserWait(t *testing.T) {
	const loop, other = 4242, 4243
	f := newFakeClock()
	p := throttle{clock: clock{f.now, f.after, f.uptime}}
	pass := func(uid uint32, n int) {
		t.Helper()
		for range n {
			if err := p.wait(t.Context(), uid); err != nil {
				t.Fatal(err)
			}
		}
	}
	pass(loop, changesPerSecond)
	through := make(chan int, 2*changesPerSecond+1)
	go func() {
		for i := range cap(through) {
			_ = p.wait(t.Context(), loop)
			through <- i
		}
	}()
	for second := 1; second <= 2; second++ {
		bounded.Until(t, "the next one waits", func() bool { return f.waiting() == 1 })
		if got := len(through); got != (second-1)*changesPerSecond {
			t.Errorf("%d went through at once, and %d before second %d", changesPerSecond, got, second)
		}
		pass(other, changesPerSecond/2)
		pass(0, 10*changesPerSecond)
		f.Advance(time.Second)
	}
	bounded.Until(t, "the last one waits", func() bool { return f.waiting() == 1 && len(through) == 2*changesPerSecond })
	f.Advance(time.Second)
	bounded.Until(t, "all went through", func() bool { return len(through) == cap(through) })
}

// TestAWriteThatWaitsIsInterrupted: a signal to who writes ends the wait, and the limit is what it was.
func TestAWriteThatWaitsIsInterrupted(t *testing.T) {
	const uid = 4242
	b := newClockedBench(t, 1<<30)
	write := func(ctx context.Context) error {
		return b.Set(ctx, gpufs.Setting{Of: gpufs.OfDevice, Device: 0, Name: "slots.max", Value: "1", UID: uid})
	}
	for range changesPerSecond { // refused ones count as well
		if err := write(t.Context()); !errors.Is(err, unix.EPERM) {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := write(ctx); !errors.Is(err, unix.EINTR) {
		t.Errorf("an interrupted write: %v, want EINTR", err)
	}
	b.clock.Advance(time.Second)
	if err := write(t.Context()); !errors.Is(err, unix.EPERM) {
		t.Errorf("a second later: %v, want EPERM", err)
	}
}
