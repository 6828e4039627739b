package entrypoints

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows that bytes which a program imported from another process are left out of its unexplained
// usage. module_test.go has unexplained usage itself, and foreign_test.go the charge of shared memory.

// imports are the ways to import 100 MiB of another process's memory, and to end the import. Some import
// several times, if that gives the same address again.
var imports = map[string]struct {
	hand  func(owner, other *rig.Program)
	letGo []string
}{
	"block": {func(owner, other *rig.Program) {
		owner.Want("alloc a 100M", "ok")
		handle := strings.TrimPrefix(owner.Ask("ipcget a"), "ok ")
		other.Want("ipcopen p "+handle, "ok")
		other.Want("ipcopenv1 p "+handle, "ok")
	}, []string{"ipcclose p", "ipcclose p"}},
	"block of a context": {func(owner, other *rig.Program) {
		owner.Want("alloc a 100M", "ok")
		other.Want("context c", "ok")
		other.Want("ipcopen p "+strings.TrimPrefix(owner.Ask("ipcget a"), "ok "), "ok")
		other.Want("use first", "ok")
	}, []string{"destroy c"}},
	"mapping": {func(owner, other *rig.Program) {
		owner.Want("createshared a 100M", "ok")
		other.Want(handovers[0](owner, "a", "p"), "ok")
		other.Want("reserve r 200M", "ok")
		other.Want("map r 0 100M p", "ok")
		other.Want("map r 100M 100M p", "ok")
	}, []string{"releasemem p", "unmap r 0 200M"}},
	"pointer":              {func(owner, other *rig.Program) { shared(owner, other, "100M") }, []string{"free p"}},
	"pointer, freed later": {func(owner, other *rig.Program) { shared(owner, other, "100M") }, []string{"freeasync p s", "sync s"}},
	"pool":                 {func(owner, other *rig.Program) { shared(owner, other, "100M") }, []string{"pooldestroy pool"}},
	"external": {func(owner, other *rig.Program) {
		owner.Want("createshared a 100M", "ok")
		other.Want(fmt.Sprintf("external e %d %d 100M", owner.PID(), owner.Number("exportfd a")), "ok")
	}, []string{"externaldestroy e"}},
}

// seen starts a program from which the daemon learns how much memory a context takes.
func seen(m *rig.Machine) {
	m.T.Helper()
	p := start(m, "dlsym", gib)
	p.Want("alloc a 1M", "ok")
	rig.Eventually(m.T, "a context was seen", func() bool { return m.Lease(p.PID(), 0).Overhead == 64*mib })
}

// TestImportsAreTakenOff: unexplained usage of a program is charged to it, less the bytes that it imported, as long
// as it has the import.
func TestImportsAreTakenOff(t *testing.T) {
	t.Parallel()
	const rounding = 40 * mib // left out of unexplained usage: what a driver may add to the blocks and the pool
	for name, c := range imports {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, rig.Options{NoMount: true, Devices: "8G"})
			seen(m)
			owner, other := start(m, "dlsym", gib), start(m, "dlsym", gib)
			other.Want("alloc own 1M", "ok")
			c.hand(owner, other)
			other.Want("loadtable m 3G", "ok")
			excess := func() uint64 { return uint64(m.Lease(other.PID(), 0).Excess) }
			rig.Eventually(t, "the usage beside the import is charged", func() bool { return excess() >= 3*gib-100*mib-rounding })
			if e := excess(); e > 3*gib-100*mib {
				t.Errorf("%d bytes are charged", e)
			}
			for _, command := range c.letGo {
				other.Want(command, "ok")
			}
			rig.Eventually(t, "all usage is charged", func() bool { return excess() >= 3*gib-rounding })
		})
	}
}

// TestImportsAreNotCharged: a program that only imports memory is charged nothing, even when the owner is dead
// and the device attributes the memory to the importer.
func TestImportsAreNotCharged(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"block", "mapping", "pointer"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, rig.Options{NoMount: true, Devices: "8G"})
			seen(m)
			owner, other, loader := start(m, "dlsym", gib), start(m, "dlsym", gib), start(m, "dlsym", gib)
			other.Want("alloc own 1M", "ok")
			imports[name].hand(owner, other)
			owner.Tell("kill 9")
			owner.Wait()
			rig.Eventually(t, "the device counts it", func() bool { return m.Lease(other.PID(), 0).Overhead >= 164*mib })
			// The daemon charges the loader's unexplained usage only after two readings.
			loader.Want("loadtable m 3G", "ok")
			rig.Eventually(t, "the loader is charged", func() bool { return m.Lease(loader.PID(), 0).Excess > 0 })
			if l := m.Lease(other.PID(), 0); l.Excess != 0 || l.State != figures.StateRunning {
				t.Errorf("%+v", l)
			}
		})
	}
}
