package bindings

import (
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file makes the machine of these tests, and has what they share: commands of `gpuarb job`, and programs in
// cgroups.

// errOutOfMemory is the answer of the test program to a refused allocation.
const errOutOfMemory = "err 2"

// anne is the user who runs programs. Bindings are root's.
const anne = 20001

// machine returns a machine whose contexts take no memory, so that the oracle counts allocations alone.
func machine(t *testing.T, devices, config string) *rig.Machine {
	t.Helper()
	return rig.New(t, rig.Options{Devices: devices, NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: "schema_version = 1\n[[device]]\ncontext_reserve = \"0\"\n" + config})
}

// job runs a command of `gpuarb job`, checks its exit code and a part of what it says, and returns its output.
func job(t *testing.T, m *rig.Machine, code int, says string, args ...string) string {
	t.Helper()
	got := rig.Run(t, m.Gpuarb(append([]string{"job"}, args...)...))
	if got.Code != code || !strings.Contains(got.Stderr, says) || code == 0 && says == "" && got.Stderr != "" {
		t.Fatalf("gpuarb job %s: %d, %q, %s; want %d, %q", strings.Join(args, " "), got.Code, got.Stdout, got.Stderr, code, says)
	}
	return strings.TrimSpace(got.Stdout)
}

// holds checks that a program can allocate most bytes and not one more, and that the driver counts as much.
func holds(t *testing.T, m *rig.Machine, p *rig.Program, most string, bytes uint64) {
	t.Helper()
	p.Want("alloc all "+most, "ok")
	p.Want("alloc more 1", errOutOfMemory)
	if got := m.HeldBy(p.PID(), 0).Bytes; got != bytes {
		t.Errorf("the driver counts %d bytes of process %d, want %d", got, p.PID(), bytes)
	}
}
