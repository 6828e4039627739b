package daemon

import (
	"testing"

	"github.com/gpuarb/gpuarb/internal/figures"
)

// This file checks what programs get on a device that is lost and comes back, also from the next daemon. Devices that
// hang or fail without being lost are in reader_test.go.

// TestLostDeviceComesBack checks that a device is lost with its leases, and returns empty. New clients can have all
// of it. Sessions from before the loss get no memory of it, also from the next daemon.
func TestLostDeviceComesBack(t *testing.T) {
	b := newBench(t, gib, gib)
	old, dead := b.child(gib/2, 4096), b.child(gib/4)
	b.machine.set(func() { b.machine.lost[0] = true })
	b.until("its leases are lost", func() bool {
		return b.device(0).Lost && b.lease(old.pid, 0).State == figures.StateLost && b.lease(dead.pid, 0).State == figures.StateLost
	})
	b.addFound(b.devices()) // as the probe does that asked CUDA for the device's memory before the loss and answers late
	if !b.device(0).Lost {
		t.Error("a device that is met again while it is lost counts as back")
	}
	dead.die()
	b.until("a dead one waits for nothing", func() bool { return b.lease(dead.pid, 0).PID == 0 })
	if answer := old.ask(0, 4096); answer == "ok" {
		t.Error("it is granted bytes of a device that is gone")
	}
	if answer := old.ask(1, 4096); answer != "ok" {
		t.Errorf("on the other one it is told %q", answer)
	}

	b.machine.set(func() { b.machine.lost[0] = false; clear(b.machine.held[0]) })
	b.until("the device is back", func() bool { return !b.device(0).Lost })
	all := b.child(gib)
	check := func(when string) {
		t.Helper()
		if got := b.lease(old.pid, 0); got.State != figures.StateLost || got.Granted != 0 || got.Streams != 0 {
			t.Errorf("%s the old lease is %+v", when, got)
		}
		if got := b.lease(all.pid, 0); got.State == figures.StateLost || got.Granted != gib {
			t.Errorf("%s the new lease is %+v", when, got)
		}
		if got := b.lease(old.pid, 1); got.State == figures.StateLost || got.Used < 4096 {
			t.Errorf("%s the lease on the other device is %+v", when, got)
		}
	}
	check("once it is back")
	if answer := old.ask(0, 1); answer == "ok" {
		t.Error("who was there before is granted something")
	}
	b.restart()
	check("with the next daemon")
	old.die()
	old.freed()
	b.until("the old lease ends with its process", func() bool { return b.lease(old.pid, 0).PID == 0 && b.lease(old.pid, 1).PID == 0 })
}
