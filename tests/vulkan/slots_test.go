package vulkan

import (
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows that the logical devices of a process take one slot together, and wait or are refused if none
// is free. memory_test.go has the memory.

// TestSlots: a logical device takes one of the CPU's slots, and is refused if none is free. The
// same program can make more devices, and returns the slot with the last device.
func TestSlots(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			m := machine(t, "1G", oneAtATime)
			first, second := begin(m, way, "--no-wait"), begin(m, way, "--no-wait")
			first.Want("instance i", "ok")
			second.Want("instance i", "ok")
			first.Want("device d i", "ok")
			second.Want("device d i", "err -3")
			first.Want("device e i", "ok")
			first.Want("alloc a d 1M", "ok")
			first.Want("drop d", "ok")
			second.Want("device d i", "err -3")
			first.Want("drop e", "ok")
			second.Want("device d i", "ok")
			first.Want("device d i", "err -3")
			second.Want("dispatch d 3", "ok")
			second.Want("drop d", "ok")
			first.Want("device d i", "ok")
		})
	}
}

// TestWaitForASlot: a program that may wait gets the slot when the other program destroys its last
// device, or ends.
func TestWaitForASlot(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G", "[defaults]\nslots.max = 1\n")
	programs := []*rig.Program{begin(m, "link"), begin(m, "link", "--wait"), begin(m, "device", "--wait")}
	for _, p := range programs {
		p.Want("instance i", "ok")
	}
	programs[0].Want("device d i", "ok")
	for i, p := range programs[1:] {
		p.Tell("device d i")
		rig.Eventually(t, "it waits", func() bool { return len(m.Snapshot().Queue) == i+1 })
	}
	programs[0].Want("drop d", "ok")
	programs[1].Expect("device d ok")
	programs[1].CloseStdin()
	programs[1].Wait()
	programs[2].Expect("device d ok")
}

// TestBothInterfaces: the memory of a process on the CPU by OpenCL and by Vulkan is in one lease
// and under one budget. It has one slot, which it returns when it uses neither interface any more.
func TestBothInterfaces(t *testing.T) {
	t.Parallel()
	m := machine(t, "1G", oneAtATime)
	p := begin(m, "dlsym", "--memory", "64M")
	p.Want("instance i", "ok")
	p.Want("context c", "ok")
	p.Want("device d i", "ok")
	p.Want("alloc a d 40M", "ok")
	p.Want("buffer b c 25M", "err -4")
	p.Want("buffer b c 24M", "ok")
	p.Want("alloc e d 1", "err -2")
	uses(m, p, 64*mib)
	if s := m.Snapshot(); len(s.Leases) != 1 || !s.Leases[0].Slot {
		t.Errorf("want one lease, with a slot: %+v", s.Leases)
	}
	p.Want("drop d", "ok")
	uses(m, p, 24*mib)
	second := begin(m, "link", "--no-wait")
	second.Want("instance i", "ok")
	second.Want("device d i", "err -3") // the first program still has its OpenCL context
	p.Want("release b", "ok")
	uses(m, p, 0)
}
