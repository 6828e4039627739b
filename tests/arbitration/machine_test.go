package arbitration

import (
	"fmt"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file has the machine and the programs of the other files, and two checks at the end of a test: that the driver
// never saw more than the allowed bytes in use, and that nothing is held any more.

const (
	gib = 1 << 30
	mib = 1 << 20
)

const errOutOfMemory = "err 2"

// machine returns a machine with devices of the given sizes, on which contexts cost no memory, so that
// a share of a device is an exact number of bytes.
func machine(t testing.TB, devices, config string) *rig.Machine {
	return rig.New(t, rig.Options{Devices: devices, NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
		Config: "schema_version = 1\n" + config})
}

// waiting waits until n requests are in the queue.
func waiting(m *rig.Machine, n int) {
	m.T.Helper()
	rig.Eventually(m.T, fmt.Sprintf("%d requests wait", n), func() bool { return len(m.Snapshot().Queue) == n })
}

// cudaprog starts the interactive test program below `gpuarb run`.
func cudaprog(m *rig.Machine, flags ...string) *rig.Program {
	m.T.Helper()
	args := append([]string{"run"}, flags...)
	return m.Interact(m.Gpuarb(append(args, "--", rig.Build(m.T, "programs/cudaprog-dlsym"))...))
}

// bare starts the interactive test program under the bare preload, with more variables.
func bare(m *rig.Machine, env ...string) *rig.Program {
	m.T.Helper()
	return m.Interact(m.Command(append(m.PreloadEnv(), env...), rig.Build(m.T, "programs/cudaprog-dlsym")))
}

// within fails the test if the driver ever saw more in use than most bytes.
func within(m *rig.Machine, most uint64) {
	m.T.Helper()
	if peak := m.SimNumber("peak", "0"); peak > most {
		m.T.Errorf("the driver saw %d bytes in use at once, of %d", peak, most)
	}
}

// idle fails the test if any lease or memory remains.
func idle(m *rig.Machine) {
	m.T.Helper()
	rig.Eventually(m.T, "nothing is held and no request waits", func() bool {
		s := m.Snapshot()
		return len(s.Queue) == 0 && len(s.Leases) == 0 && len(s.Jobs) == 0 && s.Devices[0].Committed == 0 && s.Devices[0].SlotsCurrent == 0
	})
	if n := m.SimNumber("total", "0"); n != 0 {
		m.T.Errorf("the driver still holds %d bytes", n)
	}
}
