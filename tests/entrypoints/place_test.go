package entrypoints

import (
	"fmt"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows that memory located in a part of a device (a locality domain, CUDA 13.4) is charged to that
// device. places_test.go has memory that several devices use.

// Values of CUmemLocationType.
const (
	domain  = 6 // a locality domain, which is a part of a device; drivers from 13.4 on
	unknown = 7 // a type that is newer than all known types
)

// TestPlacesInADomain: memory in a part of a device is charged to that device, whichever call allocates it, and whichever
// device is current.
func TestPlacesInADomain(t *testing.T) {
	const limit = 8*mib + 1
	everyWay(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("stream s", "ok")
		p.Want(fmt.Sprint("places ", domain), "ok")
		refuses := func(symbol, command string) {
			t.Helper()
			m.CountCalls(symbol)
			p.Want(command, errOutOfMemory)
			if n := m.Calls(symbol); n != 0 {
				t.Errorf("%s: the driver was asked %d times for what was refused", command, n)
			}
			m.Sim("clear")
		}
		fails := func(symbol, command string) {
			t.Helper()
			m.Sim("fail", symbol+":1:999")
			p.Want(command, "err 999")
			m.Sim("clear")
		}
		for device := range 2 {
			fails("cuMemCreate", fmt.Sprint("create a 4M ", device))
			holds(t, m, pid, device, 0)
			p.Want(fmt.Sprint("create a 4M ", device), "ok")
			holds(t, m, pid, device, 4*mib)
			refuses("cuMemCreate", fmt.Sprint("create b 6M ", device))
			p.Want(fmt.Sprint("create b 4M ", 0x100|device), "err 101") // the device has only one such part
			p.Want(fmt.Sprint("create b 4M ", device), "ok")
			holds(t, m, pid, device, 8*mib)
			p.Want("releasemem a", "ok")
			p.Want("releasemem b", "ok")
			holds(t, m, pid, device, 0)

			p.Want(fmt.Sprint("pool own ", device), "ok")
			fails("cuMemAllocFromPoolAsync", "allocpool a 5M s own")
			p.Want("allocpool a 5M s own", "ok")
			holds(t, m, pid, device, 5*mib)
			refuses("cuMemAllocFromPoolAsync", "allocpool b 4M s own")
			p.Want("freeasync a s", "ok")
			p.Want("sync s", "ok")
			p.Want("pooldestroy own", "ok")
			holds(t, m, pid, device, 0)

			p.Want("graph graph", "ok")
			p.Want(fmt.Sprint("graphalloc a graph 5M ", device), "ok")
			p.Want("instantiate x graph", "ok")
			p.Want(fmt.Sprint("create b 4M ", device), "ok")
			refuses("cuGraphLaunch", "launch x s")
			p.Want("releasemem b", "ok")
			p.Want("launch x s", "ok")
			holds(t, m, pid, device, 5*mib)
			p.Want("free a", "ok")
			p.Want("execdestroy x", "ok")
			p.Want("graphdestroy graph", "ok")
			p.Want(fmt.Sprint("graphtrim ", device), "ok")
			holds(t, m, pid, device, 0)
		}
		exactly(p, limit)
	})
}

// TestPlacesHavePools: the pools of a part of a device are charged to that device, too. The simulated driver's cuGetProcAddress is
// older than the functions that return these pools, and does not find them.
func TestPlacesHavePools(t *testing.T) {
	t.Parallel()
	const limit = 8 * mib
	for _, way := range []string{"dlsym", "link"} {
		for _, show := range []string{"poolnow", "pooldefault"} { // both return the same pool here
			t.Run(way+" "+show, func(t *testing.T) {
				t.Parallel()
				m := rig.New(t, rig.Options{NoMount: true})
				p := start(m, way, limit)
				pid := p.PID()
				p.Want("stream s", "ok")
				p.Want(fmt.Sprint("places ", domain), "ok")
				p.Want(show+" its 1", "ok")
				p.Want("allocpool a 5M s its", "ok")
				holds(t, m, pid, 1, 5*mib)
				p.Want("allocpool b 4M s its", errOutOfMemory)
				p.Want("freeasync a s", "ok")
				p.Want("sync s", "ok")
				p.Want("pooltrim its 0", "ok")
				holds(t, m, pid, 1, 0)
			})
		}
	}
}

// TestPlacesToCome: memory at a location type that this version does not know is charged to the
// current device. The simulated driver has no such type. The test sees the charge because the library passes on
// only requests that fit the budget.
func TestPlacesToCome(t *testing.T) {
	const limit = 4 * mib
	everyWay(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		p.Want(fmt.Sprint("places ", unknown), "ok")
		p.Want("create a 4M", errInvalidValue)
		p.Want("create a 6M", errOutOfMemory)
		exactly(p, limit)
		p.Want("use 0", "ok")
		p.Want("create a 6M", errInvalidValue) // no device is current: the driver decides
		holds(t, m, p.PID(), 0, 0)
	})
}
