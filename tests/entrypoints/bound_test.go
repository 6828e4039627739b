package entrypoints

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// sparseArrays are arrays of 4 × 3 tiles that are made without memory, with the ways to
// map a tile, or more of them: %s for the memory, or -.
var sparseArrays = []struct{ make, one, all, destroy string }{
	{fmt.Sprintf("array3d a 512 300 0 %d 1 %d", float, sparse), "maptiles a 0 0 128 0 0 128 128 1 %s 0 s", "maptiles a 0 0 0 0 0 512 300 1 %s 0 s", "arraydestroy a"},
	{fmt.Sprintf("array3d a 512 300 2 %d 1 %d", float, sparse|layered), "maptilesptsz a 0 1 128 128 0 128 128 1 %s 0 s", "maptilesptsz a 0 1 0 0 0 512 300 1 %s 0 s", "arraydestroy a"},
	{fmt.Sprintf("mipmap a 1024 768 0 %d 1 %d 9", float, sparse), "mipmaptiles a 1 0 384 256 0 128 128 1 %s 0 s", "mipmaptiles a 1 0 0 0 0 512 384 1 %s 0 s", "mipmapdestroy a"},
	{fmt.Sprintf("mipmap a 512 512 0 %d 1 %d 9", float, sparse), "maptail a 0 0 64K %s 0 s", "maptail a 0 0 64K %s 0 s", "mipmapdestroy a"},
	{fmt.Sprintf("array3d a 512 300 0 %d 1 %d", float, deferred), "maptiles a 9 9 9 9 9 9 9 9 %s 0 s", "mipmaptiles a 0 0 0 0 0 0 0 0 %s 0 s", "arraydestroy a"},
	{fmt.Sprintf("mipmap a 512 300 0 %d 1 %d 3", float, deferred), "mipmaptilesptsz a 0 0 0 0 0 0 0 0 %s 0 s", "maptail a 0 0 0 %s 0 s", "mipmapdestroy a"},
}

// What is mapped into an array stays charged, released or not, until it is unmapped, in
// stream order, or the array ends.
func TestMappedIntoArrays(t *testing.T) {
	const limit = 8*mib + 1
	everyWay(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("stream s", "ok")
		for _, a := range sparseArrays[:5] {
			p.Want(a.make, "ok")
			p.Want("createtiles m 2M", "ok")
			p.Want("createtiles other 2M", "ok")
			exactly(p, limit-4*mib)
			m.Sim("fail", "cuMemMapArrayAsync*:1:999")
			p.Want(fmt.Sprintf(a.one, "other"), "err 999")
			m.Sim("clear")
			p.Want("gate s", "ok")
			p.Want(fmt.Sprintf(a.one, "m"), "ok")
			p.Want("releasemem m", "ok")
			p.Want("releasemem other", "ok")
			holds(t, m, pid, 0, 2*mib)
			p.Want("open", "ok")
			p.Want("sync s", "ok")
			holds(t, m, pid, 0, 2*mib)
			exactly(p, limit-2*mib)
			p.Want(fmt.Sprintf(a.one, "m"), errInvalidValue) // it has no handle any more
			m.Sim("fail", "cuMemMapArrayAsync*:1:999")
			p.Want(fmt.Sprintf(a.one, "-"), "err 999")
			m.Sim("clear")
			holds(t, m, pid, 0, 2*mib)
			// Unmapped once the stream gets there.
			p.Want("gate s", "ok")
			p.Want(fmt.Sprintf(a.one, "-"), "ok")
			holds(t, m, pid, 0, 2*mib)
			p.Want("open", "ok")
			p.Want("sync s", "ok")
			holds(t, m, pid, 0, 0)
			exactly(p, limit)
			// With the array, if that is destroyed.
			p.Want("createtiles m 2M", "ok")
			p.Want(fmt.Sprintf(a.one, "m"), "ok")
			p.Want("releasemem m", "ok")
			m.Sim("fail", "cu*ArrayDestroy:1:999")
			p.Want(a.destroy, "err 999")
			m.Sim("clear")
			p.Want("sync s", "ok")
			holds(t, m, pid, 0, 2*mib)
			p.Want(a.destroy, "ok")
			holds(t, m, pid, 0, 0)
			exactly(p, limit)
		}
	})
}

// A tile that is mapped anew lets go of what it was mapped to.
func TestMappedOver(t *testing.T) {
	const limit = 8 * mib
	everyWay(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("stream s", "ok")
		for _, a := range sparseArrays {
			if a.make == sparseArrays[4].make {
				continue // an array is no mipmapped one
			}
			p.Want(a.make, "ok")
			for range 20 {
				p.Want("createtiles m 2M", "ok")
				p.Want("createtiles n 4M", "ok")
				p.Want(fmt.Sprintf(a.one, "m"), "ok")
				p.Want("releasemem m", "ok")
				holds(t, m, pid, 0, 6*mib)
				p.Want("createtiles more 4M", errOutOfMemory)
				p.Want(fmt.Sprintf(a.all, "n"), "ok")
				p.Want("sync s", "ok")
				holds(t, m, pid, 0, 4*mib)
				p.Want("releasemem n", "ok")
				holds(t, m, pid, 0, 4*mib)
				p.Want(fmt.Sprintf(a.all, "-"), "ok")
				p.Want("sync s", "ok")
				holds(t, m, pid, 0, 0)
			}
			p.Want(a.destroy, "ok")
			exactly(p, limit)
		}
	})
}

// What is on its way back is waited for before anything is refused, with what was freed in
// stream order and is of no pool.
func TestUnmappedIsWaitedFor(t *testing.T) {
	const limit = 8 * mib
	everyWay(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		p.Want("stream s", "ok")
		for _, a := range sparseArrays[:4] {
			p.Want(a.make, "ok")
			p.Want("createtiles m 2M", "ok")
			p.Want(fmt.Sprintf(a.one, "m"), "ok")
			p.Want("releasemem m", "ok")
			p.Want("alloc plain 3M", "ok")
			p.Want("alloc most 3M", "ok")
			p.Want("delay s 100", "ok")
			p.Want(fmt.Sprintf(a.one, "-"), "ok")
			p.Want("create n 2M", "ok")
			p.Want("delay s 100", "ok")
			p.Want("freeasync plain s", "ok")
			p.Want("alloc plain 3M", "ok")
			holds(t, m, p.PID(), 0, limit)
			p.Want("free plain", "ok")
			p.Want("free most", "ok")
			p.Want("releasemem n", "ok")
			p.Want(a.destroy, "ok")
			exactly(p, limit)
		}
	})
}

// Parts are cut out of parts, in all three directions: what is charged is what the driver
// holds, whatever overlaps.
func TestMappedInParts(t *testing.T) {
	const limit, names = 512 * mib, 6
	everyWay(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		random := rand.New(rand.NewPCG(1, 2))
		p.Want("stream s", "ok")
		p.Want(fmt.Sprintf("array3d a 128 128 64 %d 1 %d", float, sparse), "ok") // 4 × 4 × 4 tiles
		for i := range 300 {
			box := ""
			var from, count [3]int
			for d := range 3 {
				from[d] = random.IntN(4)
				count[d] = 1 + random.IntN(4-from[d])
			}
			unit := [3]int{32, 32, 16}
			for d := range 3 {
				box += fmt.Sprint(" ", from[d]*unit[d])
			}
			for d := range 3 {
				box += fmt.Sprint(" ", count[d]*unit[d])
			}
			what := "-"
			if random.IntN(3) > 0 {
				what = fmt.Sprint("m", i%names)
				p.Want("createtiles "+what+" 4M", "ok")
			}
			p.Want("maptiles a 0 0"+box+" "+what+" 0 s", "ok")
			if what != "-" {
				p.Want("releasemem "+what, "ok")
			}
			p.Want("sync s", "ok")
			held := m.HeldBy(pid, 0).Bytes
			if l := m.Lease(pid, 0); uint64(l.Used) != held {
				t.Fatalf("round %d,%s to %s: the daemon says %d bytes, the driver %d", i, box, what, l.Used, held)
			}
		}
		p.Want("arraydestroy a", "ok")
		holds(t, m, pid, 0, 0)
		exactly(p, limit)
	})
}

// An array, and what it keeps, is gone with its context; what something else keeps is not.
func TestMappedIntoArraysOfAContext(t *testing.T) {
	const limit = 8 * mib
	everyWay(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		for _, kind := range []struct{ begin, end string }{{"context", "destroy c"}, {"primary", "reset 0"}} {
			p.Want(kind.begin+" c", "ok")
			p.Want("stream s", "ok")
			for _, a := range sparseArrays {
				p.Want(a.make, "ok")
			}
			p.Want("createtiles m 2M", "ok")
			p.Want("createtiles n 4M", "ok")
			p.Want("reserve r 4M", "ok")
			p.Want("map r 0 4M n", "ok")
			p.Want(fmt.Sprintf(sparseArrays[5].one, "m"), "ok")
			p.Want("releasemem m", "ok")
			p.Want("releasemem n", "ok")
			p.Want("sync s", "ok")
			m.Sim("fail", "cu*Ctx*:1:999")
			p.Want(kind.end, "err 999")
			m.Sim("clear")
			holds(t, m, pid, 0, 6*mib)
			p.Want(kind.end, "ok")
			holds(t, m, pid, 0, 4*mib)
			p.Want("unmap r 0 4M", "ok")
			holds(t, m, pid, 0, 0)
		}
		p.Want("use first", "ok")
		exactly(p, limit)
	})
}

// What is bound to a multicast object stays charged until it is unbound, or the object
// ends. The object costs nothing.
func TestMulticast(t *testing.T) {
	const limit = 8*mib + 1
	everyWay(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("reserve r 8M", "ok")
		versions := []string{"", " 1"} // of the functions that bind, the second with the device
		if p.Ask("bindmem r 0 r 0 2M 0") == "err 500" {
			versions = versions[:1] // a resolver that is older has none
		}
		for _, version := range versions {
			for _, bind := range []string{"bindmem mc %s m 2M 2M" + version, "bindaddr mc %s r 2M 2M" + version} {
				m.Sim("fail", "cuMulticastCreate:1:999")
				p.Want("multicast mc 2 4M", "err 999")
				m.Sim("clear")
				p.Want("multicast mc 2 4M", "ok")
				p.Want("multicastadd mc 0", "ok")
				p.Want("multicastadd mc 1", "ok")
				p.Want("create m 4M 1", "ok")
				p.Want("map r 0 4M m", "ok")
				m.Sim("fail", "cuMulticastBind*:1:999")
				p.Want(fmt.Sprintf(bind, "0"), "err 999")
				m.Sim("clear")
				p.Want(fmt.Sprintf(bind, "0"), "ok")
				p.Want(fmt.Sprintf(bind, "2M"), "ok")
				p.Want(fmt.Sprintf(bind, "2M"), errInvalidValue)
				p.Want("releasemem m", "ok")
				p.Want("unmap r 0 4M", "ok")
				holds(t, m, pid, 1, 4*mib)
				p.Want("create more 6M 1", errOutOfMemory)
				p.Want("unbind mc 1 0 4M", errInvalidValue)
				p.Want("unbind mc 1 0 2M", "ok")
				holds(t, m, pid, 1, 4*mib)
				m.Sim("fail", "cuMulticastUnbind:1:999")
				p.Want("unbind mc 1 2M 2M", "err 999")
				m.Sim("clear")
				holds(t, m, pid, 1, 4*mib)
				p.Want("unbind mc 1 2M 2M", "ok")
				holds(t, m, pid, 1, 0)
				// Or with the object, which its mapping keeps as well.
				p.Want("create m 4M 1", "ok")
				p.Want("map r 0 4M m", "ok")
				p.Want(fmt.Sprintf(bind, "0"), "ok")
				p.Want("unmap r 0 4M", "ok")
				p.Want("releasemem m", "ok")
				p.Want("map r 4M 4M mc", "ok")
				p.Want("retain again r 5M", "ok")
				p.Want("releasemem mc", "ok")
				p.Want("unmap r 4M 4M", "ok")
				holds(t, m, pid, 1, 4*mib)
				p.Want("releasemem again", "ok")
				p.Want("releasemem again", errInvalidValue)
				holds(t, m, pid, 1, 0)
			}
		}
		p.Want("context c 1", "ok")
		exactly(p, limit)
	})
}
