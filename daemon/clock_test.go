package daemon

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file checks that waiting times, timeouts and ages depend neither on jumps of the wall clock nor on sleep of
// the machine. fake_test.go has the clock that the tests move; pressure_test.go checks the times of memory.pressure.

// TestClockJumps sets the machine's clock, a day forward and two days back, while a request waits. The request times
// out as if the clock had not been set, and no age or place in the queue changes.
func TestClockJumps(t *testing.T) {
	b := &bench{t: t, dir: shortDir(t), machine: newFakeMachine(t, gib), clock: newFakeClock()}
	b.write(filepath.Join(b.dir, "gpuarb.toml"), "schema_version = 1\n[defaults]\non_full = \"wait\"\nwait_timeout = \"10m\"\n")
	b.start()
	holder, waiter := b.child(gib), b.child(0)
	answer := make(chan string, 1)
	go func() { answer <- waiter.askAnybody(0, gib/2) }()
	bounded.Until(t, "it waits", func() bool { return len(b.Snapshot().Queue) == 1 })

	for _, jump := range []time.Duration{24 * time.Hour, -48 * time.Hour} {
		b.clock.Jump(jump)
		b.clock.Advance(4 * time.Minute)
		b.until("the second has passed", func() bool { return true })
	}
	bounded.Until(t, "it waits on", func() bool { return len(b.Snapshot().Queue) == 1 })
	if waited := b.Snapshot().Queue[0].WaitedMs; waited < (8*time.Minute).Milliseconds() || waited > (9*time.Minute).Milliseconds() {
		t.Errorf("it has waited %d ms", waited)
	}
	if age := b.lease(holder.pid, 0).AgeSeconds; age < 480 || age > 540 {
		t.Errorf("a lease of eight minutes is %d s old", age)
	}
	b.clock.Advance(3 * time.Minute)
	if got := bounded.Receive(t, "its time is up", answer); !strings.Contains(got, "waited") && !strings.Contains(got, "timeout") {
		t.Errorf("it is told %q", got)
	}
}

// askAnybody is ask for a separate goroutine: it does not fail the test.
func (c *child) askAnybody(slot, bytes int) string {
	if _, err := fmt.Fprintf(c.stdin, "alloc %d %d\n", slot, bytes); err != nil {
		return err.Error()
	}
	line, _ := c.lines.ReadString('\n')
	return strings.TrimSpace(line)
}

// TestSleepIsNoWait checks that times in the state file are of the clock that stops while the machine sleeps. A night
// between two daemons then does not count as waiting.
func TestSleepIsNoWait(t *testing.T) {
	f := newFakeClock()
	c := clock{f.now, f.after, f.uptime}
	began := c.now()
	f.Advance(5 * time.Minute)
	kept := c.bootTime(began)
	f.Jump(8 * time.Hour) // the machine sleeps: the monotonic clocks stop
	f.Advance(time.Minute)
	if waited := c.now().Sub(c.fromBootTime(kept)); waited != 6*time.Minute {
		t.Errorf("the next daemon counts %v, which is to be 6m", waited)
	}
	// awake reads the kernel's CLOCK_MONOTONIC, which stops while the machine sleeps. A test cannot make the machine
	// sleep and checks only that this clock does not jump.
	if a, b := awake(), awake(); a <= 0 || b < a || b-a > time.Minute {
		t.Errorf("%v and then %v", a, b)
	}
}
