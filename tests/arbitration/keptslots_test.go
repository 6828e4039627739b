package arbitration

import (
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds that a restart of the daemon changes the slot of no idle job, whatever the slot limit was when the
// job began. tests/attack/queue_hold_test.go has the slots of jobs that use the device.

// TestSlotsOfIdleJobsOverARestart checks that a restart of the daemon neither gives a job a slot nor takes one. A job that began before there
// was a limit of slots has no slot while it is idle. A job that began under the limit keeps its slot when the limit is gone.
func TestSlotsOfIdleJobsOverARestart(t *testing.T) {
	t.Parallel()
	m := machine(t, "8G", "")
	limit := func(setting string) {
		t.Helper()
		if r := rig.Run(t, m.Gpuarb("limit", "--device", "0", setting)); r.Code != 0 {
			t.Fatal(r.Stderr)
		}
	}
	slots := func(when string, want int) {
		t.Helper()
		if got := m.Snapshot().Devices[0].SlotsCurrent; got != want {
			t.Errorf("%s: %d jobs have a slot, want %d", when, got, want)
		}
	}
	restart := func() {
		m.Kill()
		m.Start()
	}
	begin := func() *rig.Program {
		p := m.Begin(m.Gpuarb("run", "--", "/bin/sh", "-c", "echo started; read go"))
		p.Expect("started")
		return p
	}
	idlers := []*rig.Program{begin(), begin(), begin()}
	limit("slots.max=1")
	slots("three idle jobs", 0)
	restart()
	slots("after a restart", 0)
	for _, p := range idlers {
		p.CloseStdin()
		p.Wait()
	}
	idle(m)
	keeper := begin()
	slots("a job that began under the limit", 1)
	limit("slots.max=max")
	restart()
	limit("slots.max=1")
	slots("after a restart without a limit", 1)
	keeper.CloseStdin()
	keeper.Wait()
	idle(m)
}
