package daemon

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file checks that the pressure of a device, a job and a user equals the time that a request waited on the
// test's own clock. tests/pressure compares the figures with waiting times that it measures on a real clock.

// waitsOn returns a bench with a device that one client fills, and a second client that waits for half of it.
func waitsOn(t *testing.T) (b *bench, waiter *child) {
	t.Helper()
	b = &bench{t: t, dir: shortDir(t), machine: newFakeMachine(t, gib), clock: newFakeClock()}
	b.write(filepath.Join(b.dir, "gpuarb.toml"), "schema_version = 1\n[defaults]\non_full = \"wait\"\n")
	b.start()
	b.child(gib)
	return b, b.child(0)
}

// begin makes a client ask, and returns when its request waits.
func (b *bench) begin(c *child) {
	b.t.Helper()
	go c.askAnybody(0, gib/2)
	bounded.Until(b.t, "it waits", func() bool { return len(b.Snapshot().Queue) == 1 })
}

// some compares the waiting time of the device, of the client's job and of its user with the expected time.
func (b *bench) some(c *child, want time.Duration) {
	b.t.Helper()
	s := b.Snapshot()
	b.is("the device", s.Devices[0].Pressure, want)
	b.is("the user", s.Users[0].Pressure, want)
	b.is("the job", b.jobOf(c), want)
}

// jobOf returns the pressure of a client's job.
func (b *bench) jobOf(c *child) figures.PressureState {
	b.t.Helper()
	s := b.Snapshot()
	for _, j := range s.Jobs {
		if slices.Contains(j.Processes, c.pid) {
			return j.Pressure
		}
	}
	b.t.Errorf("the job of client %d is not there", c.pid)
	return figures.PressureState{}
}

func (b *bench) is(what string, got figures.PressureState, want time.Duration) {
	b.t.Helper()
	if total := time.Duration(got.Some.TotalUs) * time.Microsecond; total != want || got.Full.TotalUs != 0 {
		b.t.Errorf("%s: some %v, full %d µs; want %v and none", what, total, got.Full.TotalUs, want)
	}
}

// TestPressureIsExact checks the pressure to the millisecond of the daemon's clock, while the machine's clock is set.
func TestPressureIsExact(t *testing.T) {
	b, waiter := waitsOn(t)
	b.clock.Advance(5 * time.Second)
	b.some(waiter, 0)
	b.begin(waiter)
	b.clock.Advance(1234 * time.Millisecond)
	b.some(waiter, 1234*time.Millisecond)
	b.clock.Jump(-48 * time.Hour)
	b.clock.Advance(time.Minute)
	b.some(waiter, time.Minute+1234*time.Millisecond)
	waiter.die()
	bounded.Until(t, "no request waits", func() bool { return len(b.Snapshot().Queue) == 0 })
	b.clock.Advance(time.Hour)
	b.is("the device", b.Snapshot().Devices[0].Pressure, time.Minute+1234*time.Millisecond)
}
