package entrypoints

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows that a block of an exported memory pool is charged to the owner of the pool alone, and what
// happens to imported memory of any kind after its owner has freed it or died. foreign_test.go has the ways to
// share memory without a pool.

// shared makes an exportable pool with one block, and hands both to
// another program, as "pool" and "p". It returns the export data of the block, for further imports.
func shared(owner, other *rig.Program, block string) (data string) {
	owner.Want("stream s", "ok")
	owner.Want("poolshared own", "ok")
	owner.Want("allocpool a "+block+" s own", "ok")
	owner.Want("sync s", "ok")
	other.Want("stream s", "ok")
	other.Want(fmt.Sprintf("poolimport pool %d %d", owner.PID(), owner.Number("poolexport own")), "ok")
	data = strings.TrimPrefix(owner.Ask("ptrexport a"), "ok ")
	other.Want("ptrimport p pool "+data, "ok")
	return data
}

// TestForeignPools: a block of a pool that is handed to another process is charged once, to the owner of
// the pool. The importer frees it by each possible call, and no budget grows by that.
func TestForeignPools(t *testing.T) {
	const limit = 8 * mib
	between(t, limit, func(t *testing.T, m *rig.Machine, owner, other *rig.Program) {
		from, to := owner.PID(), other.PID()
		data := shared(owner, other, "4M")
		check := func(owned, others uint64) {
			t.Helper()
			holds(t, m, from, 0, owned)
			holds(t, m, to, 0, others)
		}
		check(4*mib, 0)
		exactly(other, limit)
		exactly(owner, limit-4*mib)
		other.Want("alloc own 1M", "ok")
		for _, free := range []string{"free p", "freeasync p s", "freeptsz p s"} {
			m.Sim("fail", "cuMemPoolImportPointer:1:999")
			other.Want("ptrimport p pool "+data, "err 999")
			m.Sim("clear")
			other.Want("ptrimport p pool "+data, "ok")
			other.Want("ptrimport q pool "+data, "ok")
			check(4*mib, mib)
			for _, symbol := range []string{"cuMemFree_v2", "cuMemFreeAsync", "cuMemFreeAsync_ptsz"} {
				m.Sim("fail", symbol+":1:999")
			}
			other.Want(free, "err 999")
			m.Sim("clear")
			other.Want(free, "ok")
			other.Want(free, errInvalidValue)
			other.Want("sync s", "ok")
			check(4*mib, mib)
			exactly(other, limit-mib)
			other.Want(strings.Replace(free, " p", " q", 1), "ok")
			other.Want("syncall", "ok")
			check(4*mib, mib)
			exactly(other, limit-mib)
		}
		// The imported pool neither lends its memory to new blocks nor is charged.
		other.Want("allocpool more 1M s pool", errInvalidValue)
		other.Want("pooluse pool", errInvalidValue)
		other.Want("pooltrim pool 0", "ok")
		other.Want("poolholds pool", "ok 4194304") // the first block, which is still imported
		check(4*mib, mib)
		exactly(other, limit-mib)
		other.Want("pooldestroy pool", "ok")
		other.Want("pooldestroy pool", errInvalidValue)
		other.Want("free p", errInvalidValue)
		other.Want("free own", "ok")
		check(4*mib, 0)
		exactly(other, limit)
		exactly(owner, limit-4*mib)
	})
}

// TestForeignPoolsRefused: the driver decides which process may import or export, and the program gets its error.
func TestForeignPoolsRefused(t *testing.T) {
	const limit = 8 * mib
	between(t, limit, func(t *testing.T, m *rig.Machine, owner, other *rig.Program) {
		data := shared(owner, other, "1M")
		fd := owner.Number("poolexport own")
		owner.Want(fmt.Sprintf("poolimport again %d %d", owner.PID(), fd), errInvalidValue)
		owner.Want("pool plain", "ok")
		owner.Want("poolexport plain", errInvalidValue)
		owner.Want("allocpool b 1M s plain", "ok")
		owner.Want("ptrexport b", errInvalidValue)
		owner.Want("alloc c 1M", "ok")
		owner.Want("ptrexport c", errInvalidValue)
		other.Want("poolexport pool", errInvalidValue)
		other.Want("ptrexport p", errInvalidValue)
		other.Want("ptrimport r pool 00", errInvalidValue)
		other.Want("poolshared its", "ok")
		other.Want("ptrimport r its "+data, errInvalidValue)
		for _, symbol := range []string{"cuMemPoolImportFromShareableHandle", "cuMemPoolExportToShareableHandle", "cuMemPoolExportPointer"} {
			m.Sim("fail", symbol+":1:999")
		}
		other.Want(fmt.Sprintf("poolimport r %d %d", owner.PID(), fd), "err 999")
		owner.Want("poolexport own", "err 999")
		owner.Want("ptrexport a", "err 999")
		m.Sim("clear")
		holds(t, m, owner.PID(), 0, 3*mib)
		holds(t, m, other.PID(), 0, 0)
		exactly(owner, limit-3*mib)
		exactly(other, limit)
	})
}

// TestForeignPoolsKeep: an exportable pool keeps its memory to its end, whatever its settings. So its
// charge stays, a stream can use the memory again, and the charge ends with the pool.
func TestForeignPoolsKeep(t *testing.T) {
	const limit = 8 * mib
	everyWayExactly(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("stream s", "ok")
		for range 2 {
			p.Want("poolshared own", "ok")
			p.Want("poolkeep own 0", "ok")
			p.Want("allocpool a 3M s own", "ok")
			p.Want("allocpool b 2M s own", "ok")
			p.Want("freeasync a s", "ok")
			p.Want("syncall", "ok")
			keeps(t, m, pid, 2*mib, 3*mib)
			p.Want("pooltrim own 0", "ok")
			keeps(t, m, pid, 2*mib, 3*mib)
			p.Want("alloc more 4M", errOutOfMemory) // trimming the pool frees nothing
			exactly(p, 3*mib)
			keeps(t, m, pid, 2*mib, 3*mib)
			// The pool has memory for blocks as large as the freed ones, but not for larger ones.
			p.Want("alloc rest 3M", "ok")
			p.Want("allocpool c 1M s own", "ok")
			keeps(t, m, pid, 6*mib, 2*mib)
			p.Want("freeasync c s", "ok")
			p.Want("sync s", "ok")
			p.Want("allocpool a 3M s own", "ok")
			keeps(t, m, pid, 8*mib, 0)
			p.Want("free rest", "ok")
			p.Want("free a", "ok")
			p.Want("freeasync b s", "ok")
			p.Want("pooldestroy own", "ok")
			p.Want("sync s", "ok")
			keeps(t, m, pid, 0, 0)
			exactly(p, limit)
		}
	})
}

// TestForeignPoolsOutliveTheImporter: the importer ends in any way, and the owner's charge stays.
func TestForeignPoolsOutliveTheImporter(t *testing.T) {
	const limit = 8 * mib
	between(t, limit, func(t *testing.T, m *rig.Machine, owner, other *rig.Program) {
		shared(owner, other, "4M")
		other.Want("destroy first", "ok")
		holds(t, m, owner.PID(), 0, 4*mib)
		exactly(owner, limit-4*mib)
		other.CloseStdin()
		other.Wait()
		holds(t, m, owner.PID(), 0, 4*mib)
		owner.Want("freeasync a s", "ok")
		owner.Want("sync s", "ok")
		owner.Want("pooldestroy own", "ok")
		holds(t, m, owner.PID(), 0, 0)
		exactly(owner, limit)
	})
}

// lent are the ways in which memory gets into another process: how the owner makes 4M
// of it as "a", how the other process imports it as "p", and how each frees it.
var lent = []struct {
	name             string
	hand             func(owner, other *rig.Program)
	letGo, importers []string
}{
	{"mapping", func(owner, other *rig.Program) {
		owner.Want("createshared a 4M", "ok")
		other.Want(handovers[0](owner, "a", "p"), "ok")
		other.Want("reserve r 4M", "ok")
		other.Want("map r 0 4M p", "ok")
	}, []string{"releasemem a"}, []string{"releasemem p", "unmap r 0 4M"}},
	{"mapping of a fabric", func(owner, other *rig.Program) {
		owner.Want("createfabric a 4M", "ok")
		other.Want(handovers[1](owner, "a", "p"), "ok")
	}, []string{"releasemem a"}, []string{"releasemem p"}},
	{"block", func(owner, other *rig.Program) {
		owner.Want("alloc a 4M", "ok")
		other.Want("ipcopen p "+strings.TrimPrefix(owner.Ask("ipcget a"), "ok "), "ok")
	}, []string{"free a"}, []string{"ipcclose p"}},
	{"pool", func(owner, other *rig.Program) { shared(owner, other, "4M") },
		nil, []string{"freeasync p s", "sync s"}},
}

// TestForeignMemoryOutlivesItsOwner: the owner frees its memory, or dies, before the importers. The bytes leave its charge,
// and are charged to no budget. They are still in use on the device, so they count
// as overhead of the process that has them by the device's own figures, and are not free for other programs.
func TestForeignMemoryOutlivesItsOwner(t *testing.T) {
	t.Parallel()
	const device, limit = 16 * mib, 8 * mib
	for _, c := range lent {
		for _, dies := range []bool{false, true} {
			if !dies && c.letGo == nil {
				continue
			}
			t.Run(fmt.Sprintf("%s, dies %v", c.name, dies), func(t *testing.T) {
				t.Parallel()
				m := rig.New(t, rig.Options{NoMount: true, Devices: "16M", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
				owner, other := start(m, "dlsym", limit), start(m, "dlsym", limit)
				third := start(m, "dlsym", device)
				pid := other.PID()
				c.hand(owner, other)
				if dies {
					from := owner.PID()
					owner.Tell("kill 9")
					owner.Wait()
					rig.Eventually(t, "its lease ends", func() bool { return !leased(m, from) })
				} else {
					for _, command := range c.letGo {
						owner.Want(command, "ok")
					}
					holds(t, m, owner.PID(), 0, 0)
				}
				holds(t, m, pid, 0, 0)
				exactly(other, limit)
				if used := m.SimNumber("used", "0"); used != 4*mib {
					t.Errorf("the device has %d bytes in use", used)
				}
				rig.Eventually(t, "the device's figures are seen", func() bool { return m.Lease(pid, 0).Overhead == 4*mib })
				third.Want(fmt.Sprintf("alloc more %d", device-4*mib+1), errOutOfMemory)
				third.Want(fmt.Sprintf("alloc more %d", device-4*mib), "ok")
				third.Want("free more", "ok")
				for _, command := range c.importers {
					other.Want(command, "ok")
				}
				holds(t, m, pid, 0, 0)
				if used := m.SimNumber("used", "0"); used != 0 {
					t.Errorf("the device has %d bytes in use in the end", used)
				}
				exactly(other, limit)
			})
		}
	}
}

func leased(m *rig.Machine, pid int) bool {
	for _, l := range m.Snapshot().Leases {
		if l.PID == pid {
			return true
		}
	}
	return false
}
