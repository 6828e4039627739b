package vulkan

import (
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// TestSlots: a device is one of the processor's slots, and is refused where there is none. A program that has it makes more
// devices, and gives it back with the last.
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

// TestWaitForASlot: who may wait has the slot when another program's last device is gone, or the program.
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

// TestBothInterfaces: what a process has of the processor by OpenCL and by Vulkan is in one lease, under one budget and one
// slot, which is given back with the last of both.
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
	second.Want("device d i", "err -3") // the first still has OpenCL's context
	p.Want("release b", "ok")
	uses(m, p, 0)
}
