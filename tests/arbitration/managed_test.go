package arbitration

import (
	"fmt"
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold how CUDA's managed memory counts: in full against budgets, but against the device only for the bytes
// that are on it. A program may have more managed memory than the device. The simulated driver moves the memory, and
// reports what is on the device.

// managedMachine returns a machine with one device of 8 GiB, which managed memory occupies only after a prefetch.
func managedMachine(t *testing.T) *rig.Machine {
	t.Helper()
	return rig.New(t, rig.Options{Devices: "8G", NoMount: true, Config: "schema_version = 1\n[defaults]\ncontext_reserve = \"0\"\n",
		Sim: []string{"SIMCUDA_CONTEXT_BYTES=0", "SIMCUDA_MANAGED_MOVES=1"}})
}

// start starts a program under gpuarb run.
func start(t *testing.T, m *rig.Machine, flags ...string) *rig.Program {
	t.Helper()
	return m.Interact(m.Gpuarb(append(append([]string{"run"}, flags...), "--", rig.Build(t, "programs/cudaprog-dlsym"), "-")...))
}

// awaits waits until the daemon has read from the device how much of a program's managed memory is away from it.
func awaits(t *testing.T, m *rig.Machine, p *rig.Program, away accounting.Bytes) {
	t.Helper()
	pid := p.PID()
	rig.Eventually(t, fmt.Sprintf("%s are away from the device", away.Human()), func() bool { return m.Lease(pid, 0).Away == away })
}

// TestManagedMemoryBeyondTheCard checks that a program without a limit can have more managed memory than the device has, as
// without gpuarb. All of it counts as used. Of the device's memory it occupies only the bytes that the device reports.
func TestManagedMemoryBeyondTheCard(t *testing.T) {
	t.Parallel()
	m := managedMachine(t)
	a, b := start(t, m), start(t, m)
	a.Want("managed x 12G", "ok")
	if l := m.Lease(a.PID(), 0); l.Used != 12<<30 || l.Away != 12<<30 {
		t.Errorf("%+v", l)
	}
	if d := m.Snapshot().Devices[0]; d.Committed != 0 || d.Capacity != 8<<30 || d.Used != 12<<30 {
		t.Errorf("%+v", d)
	}
	a.Want("info", fmt.Sprintf("ok %d %d", 8<<30, 8<<30))
	b.Want("alloc y 6G", "ok")
	b.Want("alloc z 3G", "err 2")
	rig.Eventually(t, "the program sees less free memory", func() bool { return a.Ask("info") == fmt.Sprintf("ok %d %d", 2<<30, 8<<30) })
	a.Want("prefetch x 0 0", "ok") // as many bytes as fit
	awaits(t, m, a, 10<<30)
	b.Want("alloc z 1M", "err 2") // the device is full now
	a.Want("prefetch x -1 0", "ok")
	awaits(t, m, a, 12<<30)
	b.Want("alloc z 2G", "ok")
	b.Want("alloc w 1", "err 2")

	// Freeing managed memory that is away from the device makes no room on the device.
	a.Want("free x", "ok")
	a.Want("alloc p 1", "err 2")
	b.Want("free z", "ok")
	a.Want("alloc p 2G", "ok")
	a.Want("alloc q 1", "err 2")
	if l := m.Lease(a.PID(), 0); l.Used != 2<<30 || l.Away != 0 {
		t.Errorf("%+v", l)
	}
	a.End()
	b.End()
}

// TestManagedMemoryCountsAgainstBudgets checks that managed memory counts in full against every budget, even while it is away from the
// device.
func TestManagedMemoryCountsAgainstBudgets(t *testing.T) {
	t.Parallel()
	m := managedMachine(t)
	a := start(t, m, "--memory", "4G")
	a.Want("managed x 5G", "err 2")
	a.Want("managed x 3G", "ok")
	a.Want("alloc y 1G", "ok")
	a.Want("managed z 1", "err 2")
	a.Want("alloc z 1", "err 2")
	a.Want("free x", "ok")
	a.Want("managed z 3G", "ok")
	a.Want("managed w 1", "err 2")
	a.End()
	b := start(t, m, "--per-process")
	if r := rig.Run(t, m.Gpuarb("limit", "--user", rig.User(), "memory.max=6G")); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	b.Want("managed x 7G", "err 2")
	b.Want("managed x 6G", "ok")
	b.Want("managed y 1", "err 2")
	b.Want("alloc y 1", "err 2")
	b.End()
}

// TestManagedMemoryFillsItsReservation checks that managed memory on the device is part of its job's reservation: other
// programs lose free memory only for what exceeds the reservation.
func TestManagedMemoryFillsItsReservation(t *testing.T) {
	t.Parallel()
	m := managedMachine(t)
	a, b := start(t, m, "--min", "4G"), start(t, m)
	a.Want("managed x 3G", "ok")
	a.Want("managed y 20G", "ok")
	b.Want("alloc z 5G", "err 2") // 4 GiB stay reserved
	a.Want("prefetch x 0 0", "ok")
	awaits(t, m, a, 20<<30)
	b.Want("alloc z 4G", "ok")
	b.Want("alloc w 1", "err 2")
	a.Want("alloc p 1G", "ok") // inside the reservation
	a.Want("alloc q 3G", "ok") // the driver moves the program's own managed memory out
	a.Want("alloc r 1", "err 2")
	a.End()
	b.End()
}

// TestManagedMemoryMakesRoomForItsProgram checks that a program whose managed memory fills the device can allocate other memory.
// The driver moves the managed memory out for it, as without gpuarb.
func TestManagedMemoryMakesRoomForItsProgram(t *testing.T) {
	t.Parallel()
	m := managedMachine(t)
	a, b := start(t, m), start(t, m)
	a.Want("managed x 12G", "ok")
	a.Want("prefetch x 0 0", "ok")
	awaits(t, m, a, 4<<30)
	b.Want("alloc y 1G", "err 2")
	a.Want("alloc p 3G", "ok")
	awaits(t, m, a, 7<<30)
	a.Want("alloc q 5G", "ok")
	a.Want("alloc r 1", "err 2")
	a.Want("managed r 1G", "ok")
	a.End()
	b.End()
}

// TestManagedMemoryOverARestart checks that the next daemon knows how much managed memory is away before it has read the device.
func TestManagedMemoryOverARestart(t *testing.T) {
	t.Parallel()
	m := managedMachine(t)
	a, b := start(t, m), start(t, m)
	a.Want("managed x 12G", "ok")
	a.Want("alloc p 1G", "ok")
	m.Kill()
	m.Start()
	b.Want("alloc y 7G", "ok")
	b.Want("alloc z 1", "err 2")
	a.Want("managed w 5G", "ok")
	if l := m.Lease(a.PID(), 0); l.Used != 18<<30 || l.Away != 17<<30 {
		t.Errorf("%+v", l)
	}
	a.Want("free x", "ok")
	a.Want("free p", "ok")
	b.Want("alloc z 1G", "ok")
	a.End()
	b.End()
}
