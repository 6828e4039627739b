package entrypoints

import (
	"fmt"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows that physical memory of cuMemCreate is charged from its creation until its last handle and
// its last mapping are gone. foreign_test.go has such memory in two processes, and host_test.go has such memory
// on the host.

const mib = 1 << 20

// TestVMMIsCharged: created physical memory is charged; addresses and mappings are not.
func TestVMMIsCharged(t *testing.T) {
	const limit = 8*mib + 1
	everyWay(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("create a 4M", "ok")
		holds(t, m, pid, 0, 4*mib)
		p.Want("create b 2M", "ok")
		holds(t, m, pid, 0, 6*mib)
		exactly(p, 2*mib+1)
		// Addresses and mappings are not charged.
		p.Want("reserve r 64M", "ok")
		p.Want("map r 0 4M a", "ok")
		p.Want("map r 4M 2M b", "ok")
		p.Want("map r 6M 2M b", "ok")
		holds(t, m, pid, 0, 6*mib)
		p.Want("unmap r 0 8M", "ok") // unmaps three mappings at once
		holds(t, m, pid, 0, 6*mib)
		p.Want("releasemem a", "ok")
		holds(t, m, pid, 0, 2*mib)
		p.Want("releasemem a", errInvalidValue)
		p.Want("releasemem b", "ok")
		p.Want("releasemem b", errInvalidValue)
		holds(t, m, pid, 0, 0)
		exactly(p, limit)
	})
}

// TestVMMToTheLastByte: created memory is granted to the last byte of the limit.
func TestVMMToTheLastByte(t *testing.T) {
	const limit = 8 * mib
	everyWay(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want(fmt.Sprintf("alloc most %d", 6*mib+1), "ok")
		m.CountCalls("cuMemCreate")
		p.Want("create a 2M", errOutOfMemory)
		p.Want("create a 1024G", errOutOfMemory)
		if n := m.Calls("cuMemCreate"); n != 0 {
			t.Errorf("the driver was asked %d times for what was refused", n)
		}
		m.Sim("clear")
		holds(t, m, pid, 0, 6*mib+1)
		p.Want("free most", "ok")
		p.Want("alloc most 6M", "ok")
		p.Want("create a 2M", "ok")
		p.Want("alloc more 1", errOutOfMemory)
		holds(t, m, pid, 0, limit)
		// Host memory is not charged to the device.
		p.Want("createhost h 4M", "ok")
		holds(t, m, pid, 0, limit)
	})
}

// TestVMMRollsBack: a create that the driver refuses is not charged.
func TestVMMRollsBack(t *testing.T) {
	const limit, kept = 8 * mib, 5001
	everyWay(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		fails := func(symbol, command string) {
			m.Sim("fail", symbol+":1:999")
			p.Want(command, "err 999")
			m.Sim("clear")
		}
		p.Want(fmt.Sprintf("alloc kept %d", kept), "ok")
		p.Want("reserve r 4M", "ok")
		fails("cuMemCreate", "create a 2M")
		p.Want("create a 1000", errInvalidValue) // not a multiple of the granularity
		p.Want("create a 2M 7", "err 101")       // no such device
		holds(t, m, pid, 0, kept)
		exactly(p, limit-kept)

		p.Want("create a 2M", "ok")
		fails("cuMemMap", "map r 0 2M a")
		p.Want("map r 8M 2M a", errInvalidValue) // the address is not reserved
		p.Want("map r 0 2M a", "ok")
		p.Want("map r 0 2M a", errInvalidValue) // the address is mapped already
		fails("cuMemUnmap", "unmap r 0 2M")
		p.Want("unmap r 0 4M", errInvalidValue) // only half of it is mapped
		fails("cuMemRetainAllocationHandle", "retain b r 0")
		fails("cuMemRelease", "releasemem a")
		holds(t, m, pid, 0, kept+2*mib)
		p.Want("releasemem a", "ok")
		holds(t, m, pid, 0, kept+2*mib) // the memory is still mapped
		p.Want("unmap r 0 2M", "ok")
		holds(t, m, pid, 0, kept)
		exactly(p, limit-kept)
	})
}

// TestVMMReferences: physical memory is freed when it has neither a mapping nor a reference.
func TestVMMReferences(t *testing.T) {
	const limit = 8 * mib
	everyWay(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("reserve r 64M", "ok")
		p.Want("create a 4M", "ok")
		p.Want("map r 0 4M a", "ok")
		p.Want("map r 8M 4M a", "ok")
		p.Want("map r 16M 2M a", "err 801") // only the whole memory can be mapped
		p.Want("retain b r 1M", "ok")       // inside of a mapping
		p.Want("releasemem a", "ok")
		p.Want("unmap r 0 4M", "ok")
		p.Want("unmap r 8M 4M", "ok")
		p.Want("unmap r 8M 4M", "ok")
		holds(t, m, pid, 0, 4*mib) // because of b
		p.Want("map r 16M 4M b", "ok")
		p.Want("releasemem b", "ok")
		p.Want("releasemem b", errInvalidValue)
		holds(t, m, pid, 0, 4*mib) // because of the mapping
		p.Want("create other 2M", "ok")
		p.Want("retain c r 16M", "ok") // gets a handle from the mapping alone
		p.Want("unmap r 16M 4M", "ok")
		holds(t, m, pid, 0, 6*mib)
		p.Want("releasemem c", "ok")
		holds(t, m, pid, 0, 2*mib)
		p.Want("releasemem other", "ok")
		holds(t, m, pid, 0, 0)
		exactly(p, limit)
	})
}

// TestVMMDevice: created memory is charged to the device in its properties, not to the current context's. No context is
// needed, and the memory outlives every context.
func TestVMMDevice(t *testing.T) {
	const limit = 8 * mib
	everyWay(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("create a 2M 1", "ok")
		holds(t, m, pid, 1, 2*mib)
		p.Want("use 0", "ok")
		p.Want("create b 4M 0", "ok")
		holds(t, m, pid, 0, 4*mib)
		p.Want("destroy first", "ok")
		holds(t, m, pid, 0, 4*mib)
		holds(t, m, pid, 1, 2*mib)
		p.Want("releasemem a", "ok")
		p.Want("releasemem b", "ok")
		holds(t, m, pid, 0, 0)
		holds(t, m, pid, 1, 0)
	})
}

// TestVMMThreads: threads map and unmap memory under a limit that they reach again and again.
func TestVMMThreads(t *testing.T) {
	const limit = 12*mib + 1
	everyWay(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		var granted, refused int
		got := p.Ask("mapthreads 8 2000")
		if _, err := fmt.Sscanf(got, "ok %d %d", &granted, &refused); err != nil || granted == 0 || refused == 0 {
			t.Errorf("8 threads: %s, want some granted and some refused, and nothing else", got)
		}
		if peak := m.SimNumber("peak", "0"); peak > limit {
			t.Errorf("the driver saw %d bytes at once, the limit is %d", peak, limit)
		}
		holds(t, m, p.PID(), 0, 0)
		exactly(p, limit)
	})
}

// TestVMMAgainAndAgain: memory is created and freed many times, so that handles, records and addresses are reused.
func TestVMMAgainAndAgain(t *testing.T) {
	const limit = 8 * mib
	everyWay(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		p.Want("reserve r 8M", "ok")
		for range 50 {
			for i := range 4 {
				p.Want(fmt.Sprintf("create m%d 2M", i), "ok")
				p.Want(fmt.Sprintf("map r %dM 2M m%d", 2*i, i), "ok")
				p.Want(fmt.Sprintf("releasemem m%d", i), "ok")
			}
			p.Want("create more 2M", errOutOfMemory)
			p.Want("unmap r 0 8M", "ok")
		}
		holds(t, m, p.PID(), 0, 0)
		exactly(p, limit)
	})
}
