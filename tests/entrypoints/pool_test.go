package entrypoints

import (
	"fmt"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows that allocations in stream order are charged to the byte, and that memory which a pool keeps
// stays charged to its program until the pool releases it. It compares the ledger with the bytes that the
// simulated driver has in use. pool_growth_test.go and foreign_pool_test.go have the rest of pools.

// everyWayExactly runs everyWay on a machine whose contexts take no memory. So the driver's used
// memory is what the program holds plus what its pools keep.
func everyWayExactly(t *testing.T, limit uint64, f func(t *testing.T, m *rig.Machine, p *rig.Program)) {
	eachWay(t, func(t *testing.T, way string) {
		m := rig.New(t, rig.Options{NoMount: true, Devices: "64M", Sim: handles(way, "SIMCUDA_CONTEXT_BYTES=0")})
		f(t, m, start(m, way, limit))
	})
}

// keeps compares what a process holds, what its pools keep in addition, and its
// charge.
func keeps(t *testing.T, m *rig.Machine, pid int, held, kept uint64) {
	t.Helper()
	if h := m.HeldBy(pid, 0); h.Bytes != held {
		t.Errorf("the driver holds %d bytes, want %d", h.Bytes, held)
	}
	if used := m.SimNumber("used", "0"); used != held+kept {
		t.Errorf("the driver has %d bytes in use, want %d and %d", used, held, kept)
	}
	if l := m.Lease(pid, 0); uint64(l.Used) != held+kept {
		t.Errorf("the daemon says %d bytes, want %d and %d", l.Used, held, kept)
	}
}

// pooled are the calls that allocate and free in stream order; %s stands for the name, %d for the size.
var pooled = []struct{ alloc, free, symbol string }{
	{"allocasync %s %d s", "freeasync %s s", "cuMemAllocAsync"},
	{"allocptsz %s %d s", "freeptsz %s s", "cuMemAllocAsync_ptsz"},
	{"allocpool %s %d s", "freeasync %s s", "cuMemAllocFromPoolAsync"},
	{"poolptsz %s %d s", "freeptsz %s s", "cuMemAllocFromPoolAsync_ptsz"},
	{"allocpool %s %d s own", "freeasync %s s", "cuMemAllocFromPoolAsync"},
	{"poolptsz %s %d 2 own", "freeptsz %s 2", "cuMemAllocFromPoolAsync_ptsz"},
	{"allocasync %s %d 0", "freeasync %s 0", "cuMemAllocAsync"},
	{"allocptsz %s %d 0", "freeptsz %s 0", "cuMemAllocAsync_ptsz"},
	{"allocasync %s %d s", "free %s", "cuMemAllocAsync"},
}

// TestPoolsAreCharged: allocations in stream order are charged to the byte, and refused at the byte.
func TestPoolsAreCharged(t *testing.T) {
	const limit, bytes = 8<<20 + 3, 100003
	everyWayExactly(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("stream s", "ok")
		p.Want("pool own", "ok")
		for _, c := range pooled {
			p.Want(fmt.Sprintf(c.alloc, "a", bytes), "ok")
			keeps(t, m, pid, bytes, 0)
			exactly(p, limit-bytes)
			// The last byte is granted and one more is refused, without a call of the driver.
			p.Want(fmt.Sprintf(c.alloc, "b", limit-bytes), "ok")
			m.CountCalls("cuMemAlloc*")
			p.Want(fmt.Sprintf(c.alloc, "c", 1), errOutOfMemory)
			if n := m.Calls("cuMemAlloc*"); n != 0 {
				t.Errorf("%s: the driver was asked %d times for what was refused", c.alloc, n)
			}
			m.Sim("clear")
			keeps(t, m, pid, limit, 0)
			p.Want(fmt.Sprintf(c.free, "b"), "ok")
			p.Want(fmt.Sprintf(c.free, "a"), "ok")
			p.Want(fmt.Sprintf(c.free, "a"), errInvalidValue)
			p.Want("syncall", "ok")
			keeps(t, m, pid, 0, 0)
			exactly(p, limit)
		}
	})
}

// TestPoolsRollBack: an allocation or a free that the driver refuses changes no charge.
func TestPoolsRollBack(t *testing.T) {
	const limit, bytes, kept = 8 << 20, 100003, 5001
	everyWayExactly(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("stream s", "ok")
		p.Want("pool own", "ok")
		p.Want(fmt.Sprintf("alloc kept %d", kept), "ok")
		fails := func(symbol, command, code string) {
			m.Sim("fail", symbol+":1:"+code)
			p.Want(command, "err "+code)
			m.Sim("clear")
		}
		for _, c := range pooled {
			fails(c.symbol, fmt.Sprintf(c.alloc, "a", bytes), "999")
			keeps(t, m, pid, kept, 0)
			p.Want(fmt.Sprintf(c.alloc, "a", bytes), "ok")
			for _, symbol := range []string{"cuMemFreeAsync", "cuMemFreeAsync_ptsz", "cuMemFree_v2"} {
				m.Sim("fail", symbol+":1:999")
			}
			p.Want(fmt.Sprintf(c.free, "a"), "err 999")
			m.Sim("clear")
			keeps(t, m, pid, kept+bytes, 0)
			p.Want(fmt.Sprintf(c.free, "a"), "ok")
			p.Want("syncall", "ok")
			keeps(t, m, pid, kept, 0)
		}
		// A failed allocation returns its bytes to their source: the pool, or a pending free.
		for _, pool := range []string{"default", "own"} {
			p.Want("poolkeep "+pool+" 64M", "ok")
			p.Want(fmt.Sprintf("allocpool a %d s %s", bytes, pool), "ok")
			p.Want("freeasync a s", "ok")
			p.Want("sync s", "ok")
			fails("cuMemAllocFromPoolAsync", fmt.Sprintf("allocpool a %d s %s", 2*bytes, pool), "999")
			keeps(t, m, pid, kept, bytes)
			p.Want(fmt.Sprintf("allocpool a %d s %s", bytes, pool), "ok")
			p.Want("gate s", "ok")
			p.Want("freeasync a s", "ok")
			fails("cuMemAllocFromPoolAsync", fmt.Sprintf("allocpool a %d s %s", bytes, pool), "999")
			keeps(t, m, pid, kept+bytes, 0)
			p.Want("open", "ok")
			p.Want("sync s", "ok")
			keeps(t, m, pid, kept, bytes)
			exactly(p, limit-kept)
			p.Want(fmt.Sprintf("pooltrim %s 0", pool), "ok")
			keeps(t, m, pid, kept, 0)
		}
		p.Want("allocpool a 1000 s own", "ok")
		fails("cuMemPoolDestroy", "pooldestroy own", "999")
		p.Want("freeasync a s", "ok")
		p.Want("sync s", "ok")
		keeps(t, m, pid, kept, 1000)
		p.Want("pooldestroy own", "ok")
		keeps(t, m, pid, kept, 0)
		p.Want("pooldestroy own", errInvalidValue)
		exactly(p, limit-kept)
	})
}

// TestPoolsKeep: pooled memory is charged, and its program can use it again from that pool,
// until the pool releases it in any way.
func TestPoolsKeep(t *testing.T) {
	const limit = 8 << 20
	everyWayExactly(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		fill := func(pool string) {
			p.Want("allocpool a 3M s "+pool, "ok")
			p.Want("allocpool b 2M s "+pool, "ok")
			p.Want("freeasync a s", "ok")
			p.Want("freeasync b s", "ok")
			p.Want("sync s", "ok")
		}
		p.Want("stream s", "ok")
		p.Want("pool own", "ok")
		for _, pool := range []string{"default", "own"} {
			p.Want("poolkeep "+pool+" 4M", "ok")
			fill(pool)
			keeps(t, m, pid, 0, 4<<20)
			p.Want("poolholds "+pool, "ok 4194304")
			// The block comes from pooled memory, and the rest from the budget.
			p.Want("allocpool a 1M s "+pool, "ok")
			keeps(t, m, pid, 1<<20, 3<<20)
			p.Want("allocpool b 7M s "+pool, "ok")
			keeps(t, m, pid, 8<<20, 0)
			p.Want("alloc more 1", errOutOfMemory)
			p.Want("free b", "ok")
			keeps(t, m, pid, 1<<20, 7<<20)
			p.Want("syncptsz s", "ok")
			keeps(t, m, pid, 1<<20, 3<<20)
			p.Want("freeasync a s", "ok")
			p.Want("syncevent s", "ok")
			keeps(t, m, pid, 0, 4<<20)
			p.Want("pooltrim "+pool+" 1000001", "ok")
			keeps(t, m, pid, 0, 1000001)
			p.Want("poolkeep "+pool+" 0", "ok")
			p.Want("syncall", "ok")
			keeps(t, m, pid, 0, 0)
			// Under pressure the pool is trimmed only by the missing bytes.
			p.Want("poolkeep "+pool+" 64M", "ok")
			fill(pool)
			keeps(t, m, pid, 0, 5<<20)
			p.Want("alloc other 4M", "ok")
			keeps(t, m, pid, 4<<20, 4<<20)
			p.Want("free other", "ok")
			exactly(p, limit)
			keeps(t, m, pid, 0, 0)
			fill(pool)
			p.Want(fmt.Sprintf("alloc more %d", limit+1), errOutOfMemory)
			keeps(t, m, pid, 0, 5<<20)
			p.Want("pooltrim "+pool+" 0", "ok")
		}
		// Another pool cannot use this pool's memory, but the pool is trimmed for it.
		fill("own")
		p.Want("allocpool a 5M s default", "ok")
		keeps(t, m, pid, 5<<20, 3<<20)
		p.Want("free a", "ok")
		p.Want("pooltrim default 0", "ok")
		p.Want("poolkeep default 0", "ok")
		// The device's current pool behaves like any other pool.
		p.Want("pooluse own", "ok")
		p.Want("allocasync a 3M s", "ok")
		keeps(t, m, pid, 3<<20, 0)
		p.Want("pooldestroy own", "ok")
		p.Want("allocasync b 1M s", "ok")
		keeps(t, m, pid, 4<<20, 0)
		p.Want("freeasync a s", "ok")
		p.Want("freeasync b s", "ok")
		p.Want("sync s", "ok")
		keeps(t, m, pid, 0, 0)
		exactly(p, limit)
	})
}

// TestPoolsOfManagedMemory: memory of a managed pool without a preferred location is charged to the device that uses it, like
// other managed memory.
func TestPoolsOfManagedMemory(t *testing.T) {
	const limit, bytes = 8<<20 + 3, 100003
	everyWayExactly(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("stream s", "ok")
		p.Want("poolmanaged own", "ok")
		p.Want("poolkeep own 64M", "ok")
		p.Want(fmt.Sprintf("allocpool a %d s own", bytes), "ok")
		keeps(t, m, pid, bytes, 0)
		p.Want(fmt.Sprintf("allocpool b %d s own", limit-bytes+1), errOutOfMemory)
		p.Want(fmt.Sprintf("allocpool b %d s own", limit-bytes), "ok")
		p.Want("alloc more 1", errOutOfMemory)
		p.Want("freeasync a s", "ok")
		p.Want("free b", "ok")
		p.Want("sync s", "ok")
		keeps(t, m, pid, 0, limit)
		p.Want("pooldestroy own", "ok")
		keeps(t, m, pid, 0, 0)
		exactly(p, limit)
	})
}

// TestPoolsSince13 tests the calls that drivers have since 13.0. The simulated driver's cuGetProcAddress
// is older and finds none of them.
func TestPoolsSince13(t *testing.T) {
	t.Parallel()
	const limit = 8 << 20
	for _, way := range []string{"dlsym", "link"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, rig.Options{NoMount: true, Devices: "64M", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
			p := start(m, way, limit)
			pid := p.PID()
			p.Want("stream s", "ok")
			p.Want("pool own", "ok")
			p.Want("pooluse13 own", "ok")
			p.Want("poolnow now", "ok")
			p.Want("allocasync a 1M s", "ok")
			p.Want("poolholds own", "ok 1048576")
			p.Want("free a", "ok")
			p.Want("syncall", "ok")
			p.Want("pooldefault other", "ok")
			for _, pool := range []string{"now", "other"} {
				p.Want("poolkeep "+pool+" 4M", "ok")
				p.Want("allocpool a 8M s "+pool, "ok")
				p.Want("allocpool b 1 s "+pool, errOutOfMemory)
				p.Want("freeasync a s", "ok")
				p.Want("syncof first", "ok")
				keeps(t, m, pid, 0, 4<<20) // a synchronisation releases the pooled memory, in the ledger too
				p.Want("pooltrim "+pool+" 0", "ok")
				keeps(t, m, pid, 0, 0)
			}
			exactly(p, limit)
		})
	}
}

// TestPoolsEnd: a destroyed pool keeps its memory until its last block is freed.
func TestPoolsEnd(t *testing.T) {
	const limit = 8 << 20
	everyWayExactly(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("stream s", "ok")
		for range 3 { // so that the library reuses its records
			p.Want("pool own", "ok")
			p.Want("poolkeep own 64M", "ok")
			for _, name := range []string{"a", "b", "c"} {
				p.Want("allocpool "+name+" 1M s own", "ok")
			}
			p.Want("freeasync a s", "ok")
			p.Want("sync s", "ok")
			keeps(t, m, pid, 2<<20, 1<<20)
			p.Want("gate s", "ok")
			p.Want("freeasync b s", "ok")
			p.Want("pooldestroy own", "ok")
			keeps(t, m, pid, 2<<20, 1<<20)
			p.Want("open", "ok")
			p.Want("sync s", "ok")
			keeps(t, m, pid, 1<<20, 2<<20)
			p.Want("alloc more 6M", errOutOfMemory)
			p.Want("free c", "ok")
			keeps(t, m, pid, 0, 0)
		}
		exactly(p, limit)
	})
}

// TestPoolsInStreamOrder: a stream can reuse its freed memory at once, even if it has not executed the free yet. So
// a budget of one block is enough for it, and another stream must wait for the block.
func TestPoolsInStreamOrder(t *testing.T) {
	const limit = 2 << 20
	everyWayExactly(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("stream s", "ok")
		p.Want("stream other", "ok")
		p.Want("allocasync a 2M s", "ok")
		p.Want("gate s", "ok")
		p.Want("freeasync a s", "ok")
		keeps(t, m, pid, limit, 0)
		p.Want("allocasync b 2M other", errOutOfMemory) // the gate stays shut while the request waits
		for range 3 {
			p.Want("allocasync b 2M s", "ok")
			keeps(t, m, pid, limit, 0)
			p.Want("freeasync b s", "ok")
			keeps(t, m, pid, limit, 0)
		}
		p.Want("alloc more 1", errOutOfMemory)
		p.Want("open", "ok")
		p.Want("allocasync b 2M other", "ok") // waits, and then gets the block from the pool
		keeps(t, m, pid, limit, 0)
		// A new stream may have the handle of an ended stream, and must not inherit its frees.
		p.Want("freeasync b other", "ok")
		p.Want("streamdestroy other", "ok")
		p.Want("stream other", "ok")
		p.Want("allocasync b 2M other", "ok")
		keeps(t, m, pid, limit, 0)
		p.Want("freeasync b other", "ok")
		p.Want("syncall", "ok")
		keeps(t, m, pid, 0, 0)
		if peak := m.SimNumber("peak", "0"); peak != limit {
			t.Errorf("the driver saw %d bytes at once, the limit is %d", peak, limit)
		}
	})
}

// TestMillionPairs: a million pairs over four streams fit a budget of two blocks. None is refused,
// and nothing is left over.
func TestMillionPairs(t *testing.T) {
	t.Parallel()
	const pairs, block = 1000000, 1 << 20
	m := rig.New(t, rig.Options{NoMount: true, Devices: "64M", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	p := start(m, "dlsym", 2*block)
	pid := p.PID()
	streams := ""
	for _, name := range []string{"a", "b", "c", "d"} {
		p.Want("stream "+name, "ok")
		streams += " " + name
	}
	const parts = 20 // so that each answer comes well within its time limit
	for range parts {
		p.Want(fmt.Sprintf("asyncpairs %d %d%s", pairs/parts, block, streams), fmt.Sprintf("ok %d", pairs/parts))
	}
	p.Want("syncall", "ok")
	keeps(t, m, pid, 0, 0)
	if peak := m.SimNumber("peak", "0"); peak > 2*block {
		t.Errorf("the driver saw %d bytes at once, the limit is %d", peak, 2*block)
	}
	exactly(p, 2*block)
}

// TestPoolsBesideACapture: none of these calls breaks the capture of a stream, in any mode and thread.
func TestPoolsBesideACapture(t *testing.T) {
	const limit = 4 << 20
	everyWayExactly(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("stream captured", "ok")
		p.Want("stream s", "ok")
		p.Want("stream t", "ok")
		p.Want("poolkeep default 64M", "ok")
		for mode := range 3 {
			p.Want(fmt.Sprintf("capture captured %d", mode), "ok")
			for i := range 80 { // often enough that the library polls pending frees without need
				p.Want(fmt.Sprintf("allocasync a%d 1000 s", i), "ok")
			}
			for i := range 80 {
				p.Want(fmt.Sprintf("freeasync a%d s", i), "ok")
			}
			p.Want("allocasync a 4M t", "ok") // needs the whole budget
			p.Want("allocasync b 1 s", errOutOfMemory)
			p.Want("freeasync a t", "ok")
			p.Want("allocasync b 3M s", "ok")
			p.Want("freeasync b s", "ok")
			p.Want("capturing captured", "ok 1")
			p.Want("endcapture captured graph", "ok")
			p.Want("graphdestroy graph", "ok")
			p.Want("syncall", "ok")
			p.Want("pooltrim default 0", "ok")
			keeps(t, m, pid, 0, 0)
		}
	})
}

// TestPoolsAfterADaemonDied: the next daemon counts pooled memory as well.
func TestPoolsAfterADaemonDied(t *testing.T) {
	const limit = 8 << 20
	everyWayExactly(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("stream s", "ok")
		p.Want("poolkeep default 64M", "ok")
		p.Want("allocasync a 3M s", "ok")
		p.Want("allocasync b 1M s", "ok")
		p.Want("freeasync a s", "ok")
		p.Want("sync s", "ok")
		p.Want("gate s", "ok")
		p.Want("freeasync b s", "ok")
		m.Kill()
		m.Start()
		p.Want(fmt.Sprintf("alloc rest %d", 4<<20), "ok")
		keeps(t, m, pid, 5<<20, 3<<20)
		p.Want("open", "ok")
		p.Want("sync s", "ok")
		p.Want("free rest", "ok")
		keeps(t, m, pid, 0, 4<<20)
		p.Want("pooltrim default 0", "ok")
		keeps(t, m, pid, 0, 0)
		exactly(p, limit)
	})
}

// TestPoolsOutliveContexts: memory of a pool belongs to no context. It stays charged when the context in which it was
// allocated is reset or destroyed, including pending frees and pooled memory.
func TestPoolsOutliveContexts(t *testing.T) {
	const limit = 8 << 20
	everyWayExactly(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("pool own", "ok")
		p.Want("poolkeep own 64M", "ok")
		for _, c := range []struct{ begin, end string }{
			{"primary c", "release 0"},
			{"primary c", "releasev1 0"},
			{"primary c", "reset 0"}, // the context stays retained
			{"primary c", "resetv1 0"},
			{"context c", "destroy c"},
			{"context c", "destroyv1 c"},
		} {
			p.Want(c.begin, "ok")
			p.Want("stream s", "ok")
			p.Want("alloc plain 1M", "ok")
			p.Want("allocpool a 1M s own", "ok")
			p.Want("allocpool b 2M s own", "ok")
			p.Want("allocpool k 1M s own", "ok")
			p.Want("freeasync k s", "ok")
			p.Want("sync s", "ok")
			p.Want("delay s 50", "ok")
			p.Want("freeasync b s", "ok")
			keepsAll(t, m, pid, 5<<20)
			p.Want(c.end, "ok")
			p.Want("use first", "ok")
			keeps(t, m, pid, 1<<20, 3<<20)
			exactly(p, 7<<20) // trims the pool
			keeps(t, m, pid, 1<<20, 0)
			p.Want("allocpool b 7M 0 own", "ok")
			p.Want("alloc more 1", errOutOfMemory)
			p.Want("free b", "ok")
			p.Want("freeasync a 0", "ok")
			p.Want("syncall", "ok")
			keeps(t, m, pid, 0, 8<<20)
			p.Want("pooltrim own 0", "ok")
			keeps(t, m, pid, 0, 0)
			if t.Failed() {
				t.Fatalf("after %+v", c)
			}
		}
		exactly(p, limit)
	})
}

// keepsAll checks like keeps, if the share of live blocks is not known.
func keepsAll(t *testing.T, m *rig.Machine, pid int, bytes uint64) {
	t.Helper()
	if used := m.SimNumber("used", "0"); used != bytes {
		t.Errorf("the driver has %d bytes in use, want %d", used, bytes)
	}
	if l := m.Lease(pid, 0); uint64(l.Used) != bytes {
		t.Errorf("the daemon says %d bytes, want %d", l.Used, bytes)
	}
}

// TestPoolsWithALargestSize: a pool with a maximum size refuses requests that the budget would allow, and such a
// request is not charged.
func TestPoolsWithALargestSize(t *testing.T) {
	const limit = 8 << 20
	everyWayExactly(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("stream s", "ok")
		p.Want("poolmost own 3M", "ok")
		p.Want("poolkeep own 64M", "ok")
		for range 3 {
			p.Want("allocpool a 3M s own", "ok")
			p.Want("allocpool b 1 s own", errOutOfMemory)
			keeps(t, m, pid, 3<<20, 0)
			p.Want("freeasync a s", "ok")
			p.Want("sync s", "ok")
			keeps(t, m, pid, 0, 3<<20)
			p.Want("allocpool a 4M s own", errOutOfMemory)
			keeps(t, m, pid, 0, 3<<20)
		}
		exactly(p, limit)
		keeps(t, m, pid, 0, 0)
	})
}

// TestPoolsTakeTurns: the device's current pool changes between two allocations, and each block
// returns to its own pool.
func TestPoolsTakeTurns(t *testing.T) {
	const limit = 8 << 20
	everyWayExactly(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("stream s", "ok")
		p.Want("pool own", "ok")
		p.Want("poolshared kept", "ok")
		p.Want("poolkeep own 64M", "ok")
		for _, pool := range []string{"own", "kept", "default"} {
			p.Want("pooluse "+pool, "ok")
			p.Want("allocasync "+pool+"1 1M s", "ok")
			p.Want("allocptsz "+pool+"2 1M s", "ok")
		}
		keeps(t, m, pid, 6<<20, 0)
		for _, pool := range []string{"default", "own", "kept"} {
			p.Want("freeasync "+pool+"1 s", "ok")
			p.Want("free "+pool+"2", "ok")
		}
		p.Want("syncall", "ok")
		keeps(t, m, pid, 0, 4<<20)
		p.Want("poolholds own", "ok 2097152")
		p.Want("poolholds kept", "ok 2097152")
		exactly(p, 6<<20) // one of the pools is trimmed
		keeps(t, m, pid, 0, 2<<20)
		p.Want("pooluse kept", "ok")
		p.Want("pooldestroy kept", "ok")
		keeps(t, m, pid, 0, 0)
		p.Want("allocasync a 8M s", "ok")
		p.Want("pooluse kept", errInvalidValue)
		p.Want("free a", "ok")
		p.Want("syncall", "ok")
		keeps(t, m, pid, 0, 0)
		exactly(p, limit)
	})
}

// TestPoolsChangeUnderAnAllocation: a thread changes the device's current pool while another thread allocates. Each
// block is charged to the pool from which the driver took it.
func TestPoolsChangeUnderAnAllocation(t *testing.T) {
	const limit = 8 << 20
	everyWayExactly(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("pool own", "ok")
		p.Want("poolkeep own 64M", "ok")
		p.Want("poolkeep default 64M", "ok")
		for i := range 120 {
			size := "1M"
			if i%4 == 0 {
				size = "8M" // the whole budget: memory that one pool keeps is missing in the other
			}
			p.Want("poolrace own 20 "+size, "ok")
			keepsAll(t, m, pid, p.Number("poolholds own")+p.Number("poolholds default"))
			p.Want("pooltrim own 0", "ok")
			p.Want("pooltrim default 0", "ok")
			keeps(t, m, pid, 0, 0)
			exactly(p, limit)
		}
	})
}

// chunked runs a test on machines whose pools consist of chunks of 2 or of 32 MiB, and whose
// driver remaps pooled memory or does not.
func chunked(t *testing.T, limit uint64, f func(t *testing.T, m *rig.Machine, p *rig.Program, granule uint64)) {
	t.Parallel()
	for _, granule := range []uint64{2 * mib, 32 * mib} {
		for _, remap := range []int{0, 1} {
			t.Run(fmt.Sprintf("%dM/remap=%d", granule/mib, remap), func(t *testing.T) {
				t.Parallel()
				m := rig.New(t, rig.Options{NoMount: true, Devices: "2G", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0",
					fmt.Sprintf("SIMCUDA_POOL_GRANULE=%d", granule), fmt.Sprintf("SIMCUDA_POOL_REMAP=%d", remap)}})
				f(t, m, start(m, "dlsym", limit), granule)
			})
		}
	}
}

// within checks that the driver has no more in use than the limit and one granule,
// and that the daemon's count differs by less than one granule.
func within(t *testing.T, m *rig.Machine, pid int, limit, granule uint64) {
	t.Helper()
	used := m.SimNumber("used", "0")
	if used >= limit+granule {
		t.Errorf("the driver counts %d MiB under a budget of %d", used/mib, limit/mib)
	}
	if l := m.Lease(pid, 0); uint64(l.Used)+granule < used || uint64(l.Used) > limit {
		t.Errorf("the daemon says %d bytes, the driver has %d", l.Used, used)
	}
}

// TestPoolsFragment: two pieces of a pool do not serve a block of their total size. Pooled memory does not let a
// program exceed its budget.
func TestPoolsFragment(t *testing.T) {
	const limit = 256 * mib
	chunked(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program, granule uint64) {
		pid := p.PID()
		p.Want("stream s", "ok")
		p.Want("stream other", "ok")
		p.Want("poolkeep default 1G", "ok")
		for _, stream := range []string{"s", "other"} {
			p.Want("allocasync a 100M s", "ok")
			p.Want("allocasync b 100M s", "ok")
			p.Want("freeasync a s", "ok")
			p.Want("freeasync b s", "ok")
			p.Want("sync s", "ok")
			p.Want("allocasync c 200M "+stream, "ok")
			within(t, m, pid, limit, granule)
			p.Want("freeasync c "+stream, "ok")
			p.Want("sync "+stream, "ok")
			within(t, m, pid, limit, granule)
		}
		p.Want("pooltrim default 0", "ok")
		// A chunk with a live block cannot be released.
		for i := range 3 {
			p.Want(fmt.Sprintf("allocasync a%d 65024K s", i), "ok")
			p.Want(fmt.Sprintf("allocasync b%d 512K s", i), "ok")
		}
		for i := range 3 {
			p.Want(fmt.Sprintf("freeasync a%d s", i), "ok")
		}
		p.Want("sync s", "ok")
		p.Want("allocasync c 100M other", errOutOfMemory)
		within(t, m, pid, limit, granule)
		p.Want("allocasync c 20M other", "ok") // takes a piece of the pooled memory
		within(t, m, pid, limit, granule)
		p.Want("free c", "ok")
		for i := range 3 {
			p.Want(fmt.Sprintf("free b%d", i), "ok")
		}
		p.Want("syncall", "ok")
		p.Want("pooltrim default 0", "ok")
		keeps(t, m, pid, 0, 0)
		exactly(p, limit)
	})
}

// TestPoolsOfChunksToTheByte: one block of exactly the budget is granted, and not one byte more, whatever the driver
// rounds it up to. It is granted again after its free, on any stream.
func TestPoolsOfChunksToTheByte(t *testing.T) {
	const limit = 250*mib + 3
	chunked(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program, granule uint64) {
		pid := p.PID()
		p.Want("stream s", "ok")
		p.Want("stream other", "ok")
		p.Want("poolkeep default 1G", "ok")
		for _, stream := range []string{"s", "s", "other", "0", "s"} {
			p.Want(fmt.Sprintf("allocasync a %d %s", limit+1, stream), errOutOfMemory)
			p.Want(fmt.Sprintf("allocasync a %d %s", limit, stream), "ok")
			p.Want("alloc more 1", errOutOfMemory)
			p.Want("allocasync more 1 "+stream, errOutOfMemory)
			within(t, m, pid, limit, granule)
			p.Want("freeasync a "+stream, "ok")
			p.Want("sync "+stream, "ok")
		}
		exactly(p, limit)
		// One granule holds many small blocks.
		for i := range 200 {
			p.Want(fmt.Sprintf("allocasync a%d 10000 s", i), "ok")
		}
		within(t, m, pid, limit, granule)
		exactly(p, limit-200*10000)
		for i := range 200 {
			p.Want(fmt.Sprintf("freeasync a%d s", i), "ok")
		}
		p.Want("syncall", "ok")
		p.Want("pooltrim default 0", "ok")
		keeps(t, m, pid, 0, 0)
		exactly(p, limit)
	})
}

// TestPoolsSteady: a stream reuses its freed memory without a query, even if the free has executed. So a
// program at the limit of its budget can allocate and free the same blocks over and over, and
// its pool is never trimmed.
func TestPoolsSteady(t *testing.T) {
	const limit = 96 * mib
	chunked(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program, granule uint64) {
		pid := p.PID()
		p.Want("stream s", "ok")
		p.Want("poolkeep default 1G", "ok")
		m.CountCalls("cuMemPoolTrimTo")
		for range 5 {
			for _, mib := range []int{64, 32} {
				p.Want(fmt.Sprintf("allocasync a%d %dM s", mib, mib), "ok")
			}
			within(t, m, pid, limit, granule)
			p.Want("alloc more 1", errOutOfMemory)
			for _, mib := range []int{64, 32} {
				p.Want(fmt.Sprintf("freeasync a%d s", mib), "ok")
			}
			p.Want("sync s", "ok")
		}
		if n := m.Calls("cuMemPoolTrimTo"); n != 0 {
			t.Errorf("the pool was trimmed %d times", n)
		}
	})
}

// TestPoolsTrimmedForTwo: two threads share a budget, a pool keeps most of it, and trimming is slow. Both threads
// get their memory, even if one thread finds the other in the middle of a trim.
func TestPoolsTrimmedForTwo(t *testing.T) {
	t.Parallel()
	const limit = 256 * mib
	m := rig.New(t, rig.Options{NoMount: true, Devices: "1G", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	p := start(m, "dlsym", limit)
	p.Want("stream s", "ok")
	p.Want("poolkeep default 1G", "ok")
	m.Sim("fail", "cuMemPoolTrimTo:*:delay=400ms")
	for range 2 {
		p.Want("allocasync a 200M s", "ok")
		p.Want("freeasync a s", "ok")
		p.Want("sync s", "ok")
		keeps(t, m, p.PID(), 0, 200*mib)
		p.Want("together 2 100M", "ok 2 0")
		p.Want("together 8 25M", "ok 8 0")
	}
	m.Sim("clear")
	p.Want("pooltrim default 0", "ok")
	exactly(p, limit)
}

// TestPoolsWithoutAName: if the driver does not report its current pool, allocations from that pool are still charged,
// and uncharged when the last of them is freed.
func TestPoolsWithoutAName(t *testing.T) {
	const limit = 8 << 20
	everyWayExactly(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("stream s", "ok")
		m.Sim("fail", "cuDeviceGetMemPool:*:999")
		for range 3 {
			p.Want("allocasync a 3M s", "ok")
			p.Want("allocasync b 5M s", "ok")
			p.Want("allocasync c 1 s", errOutOfMemory)
			keeps(t, m, pid, limit, 0)
			p.Want("freeasync a s", "ok")
			p.Want("freeasync b s", "ok")
			p.Want("syncall", "ok")
			keeps(t, m, pid, 0, 0)
		}
		m.Sim("clear")
		exactly(p, limit)
	})
}
