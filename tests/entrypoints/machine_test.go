package entrypoints

import (
	"fmt"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file has the machine of the tests of entry points: the ways to find the driver's functions, and the comparisons with its count.

// Names of the driver's errors, as test programs print them.
const (
	errInvalidValue  = "err 1"
	errOutOfMemory   = "err 2"
	errInvalidHandle = "err 400"
)

// eachWay runs a test for two ways in which a program finds the driver's functions. Tests that do not depend on the way
// use a third way, dlsym; tests/conformance uses all three.
func eachWay(t *testing.T, f func(t *testing.T, way string)) {
	t.Parallel()
	for _, way := range []string{"link", "gpa"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			f(t, way)
		})
	}
}

// everyWay runs eachWay with a machine for each way, and a program under a limit.
func everyWay(t *testing.T, limit uint64, f func(t *testing.T, m *rig.Machine, p *rig.Program)) {
	eachWay(t, func(t *testing.T, way string) {
		m := rig.New(t, rig.Options{NoMount: true, Sim: handles(way)})
		f(t, m, start(m, way, limit))
	})
}

// handles returns settings that decide whether a machine's driver reuses the handles of ended objects. Half of the machines reuse them at
// once, as real drivers may. The others never do, so that a test notices if a handle is used after the end of its object.
func handles(way string, more ...string) []string {
	if way == "gpa" {
		more = append(more, "SIMCUDA_REUSE_HANDLES=1")
	}
	return more
}

func start(m *rig.Machine, way string, limit uint64) *rig.Program {
	m.T.Helper()
	env := append(m.PreloadEnv(), fmt.Sprintf("GPUARB_MEMORY=%d", limit))
	return m.Interact(m.Command(env, rig.Build(m.T, "programs/cudaprog-"+way)))
}

// holds compares the bytes that a process holds with the driver's count and the daemon's.
func holds(t *testing.T, m *rig.Machine, pid, device int, bytes uint64) {
	t.Helper()
	if h := m.HeldBy(pid, device); h.Bytes != bytes {
		t.Errorf("the driver holds %d bytes on GPU %d, want %d", h.Bytes, device, bytes)
	}
	if l := m.Lease(pid, device); uint64(l.Used) != bytes {
		t.Errorf("the daemon says %d bytes on GPU %d, want %d", l.Used, device, bytes)
	}
}

// exactly checks that exactly the given bytes are left under the limit.
func exactly(p *rig.Program, bytes uint64) {
	p.Want(fmt.Sprintf("alloc rest %d", bytes), "ok")
	p.Want("alloc more 1", errOutOfMemory)
	p.Want("free rest", "ok")
}
