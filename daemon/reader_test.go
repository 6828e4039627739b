package daemon

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file checks how the daemon reads devices: how often, what a device that hangs or fails delays, and what a
// reading ends. lost_test.go has devices that are lost, stop_test.go the stop of a daemon whose device hangs.

const gib = 1 << 30

// device returns the state of one device.
func (b *bench) device(index int) figures.DeviceState { return b.Snapshot().Devices[index] }

// TestHungDevice makes one device hang. The device is marked and its figures stay unchanged. The other device
// continues. When the device answers again, its state is as before.
func TestHungDevice(t *testing.T) {
	b := newClockedBench(t, gib, gib)
	stuck, other := b.child(4096), b.child(0, 8192)
	b.until("both are known", func() bool { return b.lease(stuck.pid, 0).Used == 4096 && b.lease(other.pid, 1).Used == 8192 })
	b.machine.hang(0)
	b.until("the device is marked", func() bool { return b.device(0).Unresponsive })
	if b.device(1).Unresponsive {
		t.Error("so is the one that answers")
	}

	other.die()
	b.until("a lease on the other device drains", func() bool { return b.lease(other.pid, 1).State == figures.StateDraining })
	other.freed()
	b.until("and ends", func() bool { return b.lease(other.pid, 1).PID == 0 })
	stuck.die()
	b.until("a client of the hung one is dead", func() bool { return b.lease(stuck.pid, 0).State == figures.StateDraining })
	for range 100 {
		b.clock.Advance(readEvery)
	}
	if got := b.lease(stuck.pid, 0); got.State != figures.StateDraining || got.Granted != 4096 {
		t.Errorf("no reading said that its memory is free, and it has %+v", got)
	}
	if answer := b.child(4096).ask(0, 4096); answer != "ok" {
		t.Errorf("a newcomer on the hung device is told %q", answer)
	}

	stuck.freed()
	b.machine.unhang()
	b.until("the memory is back", func() bool { return b.lease(stuck.pid, 0).PID == 0 })
	b.until("the device is as before", func() bool { return !b.device(0).Unresponsive })
}

// TestFailingDevice checks that a device whose readings all fail counts as one that does not answer.
func TestFailingDevice(t *testing.T) {
	b := newClockedBench(t, gib)
	b.machine.set(func() { b.machine.failing[0] = errors.New("unknown error") })
	b.until("the device is marked", func() bool { return b.device(0).Unresponsive })
	b.machine.set(func() { b.machine.failing[0] = nil })
	b.until("it answers again", func() bool { return !b.device(0).Unresponsive })
}

// TestHungAtTheStart checks that a daemon starts although a device does not answer.
func TestHungAtTheStart(t *testing.T) {
	b := &bench{t: t, dir: shortDir(t), machine: newFakeMachine(t, gib, gib)}
	b.machine.hang(1)
	b.start()
	b.child(4096, 4096)
	b.until("the one that answers does", func() bool { return b.machine.read(0) > 1 })
}

// TestOneReaderForAll checks that a device is read at most a hundred times a second however many clients die at a
// time, and that no goroutine waits for each client.
func TestOneReaderForAll(t *testing.T) {
	const clients = 12
	b := newClockedBench(t, gib)
	var all []*child
	for range clients {
		all = append(all, b.child(4096))
	}
	before := b.Snapshot().Stats.Goroutines
	for _, c := range all {
		c.die()
	}
	bounded.Until(t, "all drain", func() bool {
		n := 0
		for _, l := range b.Snapshot().Leases {
			if l.State == figures.StateDraining {
				n++
			}
		}
		return n == clients
	})
	if now := b.Snapshot().Stats.Goroutines; now > before {
		t.Errorf("%d goroutines, %d while they lived", now, before)
	}
	const readings = 20
	first, passed := b.machine.read(0)+clients, time.Duration(0)
	bounded.Until(t, "it is read often", func() bool {
		b.clock.Advance(readOften / 10)
		if b.machine.read(0) >= first {
			passed += readOften / 10
		}
		return b.machine.read(0) >= first+readings
	})
	if least := (readings - 1) * readOften; passed < least {
		t.Errorf("it was read %d times in %v, which is to take %v", readings, passed, least)
	}
	for _, c := range all {
		c.freed()
	}
	b.until("all are gone", func() bool { return len(b.Snapshot().Leases) == 0 })
}

// TestRestAfterReading checks the pause after a slow reading: the device is not read at once for a client that died
// meanwhile. One reading covers all clients that died until its beginning.
func TestRestAfterReading(t *testing.T) {
	b := newClockedBench(t, gib)
	first, second := b.child(4096), b.child(4096)
	b.machine.hang(0)
	before := b.machine.read(0)
	first.die()
	bounded.Until(t, "it is asked", func() bool { return b.machine.read(0) > before })
	b.clock.Advance(readOften) // duration of the reading
	second.die()
	bounded.Until(t, "the other drains", func() bool { return b.lease(second.pid, 0).State == figures.StateDraining })
	passed := time.Duration(0)
	b.machine.unhang()
	for began := b.machine.read(0); b.machine.read(0) == began; passed += readOften / 10 {
		b.clock.Advance(readOften / 10)
		runtime.Gosched()
	}
	if passed < readOften {
		t.Errorf("it is asked again after %v, %v after it took %v", passed, readOften, readOften)
	}
	first.freed()
	second.freed()
	b.until("both are gone", func() bool { return len(b.Snapshot().Leases) == 0 })
}

// TestAwaitReading checks that a request which waits for a reading gets one that began after the request. The request
// does not wait for a device that hangs or does not exist.
func TestAwaitReading(t *testing.T) {
	b := newBench(t, gib)
	const pid, start = 1, 0
	b.machine.set(func() { b.machine.held[0][pid] = 77 })
	b.awaitReading(0, bounded.Patience)
	b.lock()
	shown := b.arb.UsageShown(0, pid, start)
	b.unlock()
	if shown != 77 {
		t.Errorf("the books show %d bytes", shown)
	}
	b.machine.hang(0)
	b.awaitReading(0, time.Millisecond)
	b.machine.unhang()
	b.awaitReading(0, bounded.Patience)
	b.awaitReading(7, bounded.Patience)
}

// TestLostEvents checks that all sessions are checked after exec events were lost. A session ends if its process has
// executed another program, although another process holds its connection open.
func TestLostEvents(t *testing.T) {
	b := newBench(t, gib)
	gone, there := b.child(4096), b.child(8192)
	b.machine.set(func() { b.machine.unmapped[gone.pid] = true })
	if b.lease(gone.pid, 0).State == figures.StateDraining {
		t.Error("no check was made yet")
	}
	signal(b.execLost)
	gone.freed()
	b.until("the one ends", func() bool { return b.lease(gone.pid, 0).PID == 0 })
	if got := b.lease(there.pid, 0); got.Used != 8192 || got.State == figures.StateDraining {
		t.Errorf("the other is %+v", got)
	}
}
