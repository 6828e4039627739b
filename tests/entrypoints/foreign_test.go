package entrypoints

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows that memory shared by a handle, by CUDA IPC or by another API is charged once, to its owner.
// foreign_pool_test.go has shared pools, and import_test.go shows that unexplained usage leaves imports out.

// between runs a test with an owner of memory and another program, once for each way in which the other
// program finds the driver's functions.
func between(t *testing.T, limit uint64, f func(t *testing.T, m *rig.Machine, owner, other *rig.Program)) {
	t.Helper()
	everyWay(t, limit, func(t *testing.T, m *rig.Machine, other *rig.Program) {
		f(t, m, start(m, "dlsym", limit), other)
	})
}

// handovers are the ways to hand over created memory. Each returns the command that imports the
// memory `name` under the name `as`.
var handovers = []func(owner *rig.Program, name, as string) string{
	func(owner *rig.Program, name, as string) string {
		return fmt.Sprintf("importfd %s %d %d", as, owner.PID(), owner.Number("exportfd "+name))
	},
	func(owner *rig.Program, name, as string) string {
		return "importfabric " + as + " " + strings.TrimPrefix(owner.Ask("exportfabric "+name), "ok ")
	},
}

// TestForeignHandles: memory that is exported and imported is charged once, to its owner. The
// importer's opens and closes return no bytes to any process.
func TestForeignHandles(t *testing.T) {
	const limit = 8 * mib
	between(t, limit, func(t *testing.T, m *rig.Machine, owner, other *rig.Program) {
		from, to := owner.PID(), other.PID()
		check := func(owned uint64) {
			t.Helper()
			holds(t, m, from, 0, owned)
			if h := m.HeldBy(to, 0); h.Bytes != 0 {
				t.Errorf("the driver counts %d bytes of the importer's", h.Bytes)
			}
			holds(t, m, to, 0, 0)
		}
		for _, by := range handovers {
			owner.Want("createfabric a 4M", "ok")
			importing := by(owner, "a", "h")
			m.Sim("fail", "cuMemImportFromShareableHandle:1:999")
			other.Want(importing, "err 999")
			m.Sim("clear")
			other.Want(importing, "ok")
			other.Want(by(owner, "a", "again"), "ok")
			other.Want("reserve r 16M", "ok")
			other.Want("map r 0 4M h", "ok")
			other.Want("map r 4M 4M again", "ok")
			check(4 * mib)
			exactly(other, limit)
			other.Want("retain back r 1M", "ok")
			other.Want("releasemem h", "ok")
			other.Want("releasemem back", "ok")
			other.Want("unmap r 0 4M", "ok")
			check(4 * mib)
			other.Want("unmap r 4M 4M", "ok")
			other.Want("releasemem again", "ok")
			other.Want("releasemem again", errInvalidValue)
			check(4 * mib)
			exactly(other, limit)
			exactly(owner, limit-4*mib)
			owner.Want("releasemem a", "ok")
			check(0)
			exactly(owner, limit)
			other.Want(importing, errInvalidValue) // the memory is gone
			holds(t, m, to, 0, 0)
		}
	})
}

// TestForeignIPC: a block that another process opens by its IPC handle is charged to its owner alone. The other process cannot free it.
func TestForeignIPC(t *testing.T) {
	const limit = 8 * mib
	between(t, limit, func(t *testing.T, m *rig.Machine, owner, other *rig.Program) {
		from, to := owner.PID(), other.PID()
		owner.Want("alloc a 4M", "ok")
		handle := strings.TrimPrefix(owner.Ask("ipcget a"), "ok ")
		owner.Want("ipcopen own "+handle, "err 201")
		for _, open := range []string{"ipcopen", "ipcopenv1"} {
			m.Sim("fail", "cuIpcOpenMemHandle*:1:999")
			other.Want(open+" p "+handle, "err 999")
			m.Sim("clear")
			other.Want(open+" p "+handle, "ok")
			other.Want(open+" p "+handle, "ok")
			holds(t, m, from, 0, 4*mib)
			holds(t, m, to, 0, 0)
			other.Want("free p", errInvalidValue)
			exactly(other, limit)
			other.Want("ipcclose p", "ok")
			other.Want("ipcclose p", "ok")
			other.Want("ipcclose p", errInvalidValue)
			exactly(other, limit)
			holds(t, m, from, 0, 4*mib)
		}
		other.Want("context c", "ok")
		other.Want("ipcopen p "+handle, "ok")
		other.Want("destroy c", "ok")
		holds(t, m, to, 0, 0)
		exactly(owner, limit-4*mib)
		owner.Want("free a", "ok")
		exactly(owner, limit)
	})
}

// TestForeignExternal: memory that another API exported is not charged when a program maps, frees and destroys it.
func TestForeignExternal(t *testing.T) {
	const limit = 8 * mib
	between(t, limit, func(t *testing.T, m *rig.Machine, owner, other *rig.Program) {
		owner.Want("createfabric a 4M", "ok")
		external := fmt.Sprintf("external e %d %d 4M", owner.PID(), owner.Number("exportfd a"))
		m.Sim("fail", "cuImportExternalMemory:1:999")
		other.Want(external, "err 999")
		m.Sim("clear")
		other.Want(external, "ok")
		other.Want("alloc own 1M", "ok")
		m.Sim("fail", "cuExternalMemoryGetMappedBuffer:1:999")
		other.Want("externalmap p e 2M", "err 999")
		m.Sim("clear")
		other.Want("externalmap p e 2M", "ok")
		other.Want("externalmap q e 4M", "ok")
		other.Want("externalmap r e 5M", errInvalidValue)
		holds(t, m, other.PID(), 0, mib)
		exactly(other, limit-mib)
		other.Want("free p", "ok")
		other.Want("free p", errInvalidValue)
		exactly(other, limit-mib)
		other.Want("externaldestroy e", "ok")
		other.Want("externaldestroy e", errInvalidHandle)
		other.Want("free q", "ok")
		holds(t, m, other.PID(), 0, mib)
		exactly(other, limit-mib)
		holds(t, m, owner.PID(), 0, 4*mib)
	})
}

// TestForeignHandlesOfOnesOwn: a process that imports its own exported memory is charged once. While it
// has its own handle, the import returns that handle, which then needs one more release.
func TestForeignHandlesOfOnesOwn(t *testing.T) {
	const limit = 8 * mib
	everyWay(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		for _, by := range handovers {
			p.Want("createfabric a 4M", "ok")
			importing := by(p, "a", "again")
			p.Want(importing, "ok")
			m.Sim("fail", "cuMemImportFromShareableHandle:1:999")
			p.Want(importing, "err 999")
			m.Sim("clear")
			p.Want(importing, "ok")
			holds(t, m, pid, 0, 4*mib)
			p.Want("reserve r 4M", "ok")
			p.Want("map r 0 4M again", "ok")
			for range 3 {
				p.Want("releasemem a", "ok")
				holds(t, m, pid, 0, 4*mib)
				exactly(p, limit-4*mib)
			}
			p.Want("releasemem again", errInvalidValue)
			p.Want("unmap r 0 4M", "ok")
			holds(t, m, pid, 0, 0)
			exactly(p, limit)
		}
	})
}

// TestForeignHandlesOfOnesOwnLater: a process releases its own handle and then imports its memory. The library takes the import for
// memory of another process: the charge ends with the last use of the original memory, and the rest shows as overhead.
func TestForeignHandlesOfOnesOwnLater(t *testing.T) {
	const limit = 8 * mib
	t.Parallel()
	m := rig.New(t, rig.Options{NoMount: true, Devices: "64M", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	p := start(m, "dlsym", limit)
	pid := p.PID()
	p.Want("createfabric a 4M", "ok")
	fd := p.Number("exportfd a")
	p.Want("reserve r 4M", "ok")
	p.Want("map r 0 4M a", "ok")
	p.Want("releasemem a", "ok")
	p.Want(fmt.Sprintf("importfd again %d %d", pid, fd), "ok")
	holds(t, m, pid, 0, 4*mib)
	p.Want("unmap r 0 4M", "ok")
	holds(t, m, pid, 0, 0)
	if used := m.SimNumber("used", "0"); used != 4*mib {
		t.Errorf("the device has %d bytes in use", used)
	}
	rig.Eventually(t, "the device's figures are seen", func() bool { return m.Lease(pid, 0).Overhead == 4*mib })
	p.Want("releasemem again", "ok")
	p.Want(fmt.Sprintf("importfd again %d %d", pid, fd), errInvalidValue) // the memory is gone
	if used := m.SimNumber("used", "0"); used != 0 {
		t.Errorf("the device has %d bytes in use in the end", used)
	}
	exactly(p, limit)
}
