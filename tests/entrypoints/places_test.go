package entrypoints

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows that memory stays charged to the device on which it was allocated when its pages move, when
// another device gets access, or when another device's context is current. place_test.go has locations inside
// of a device.

// places are the calls that move the pages of managed memory, or advise where they should be: the
// other device, the host, and back. Calls that exist before CUDA 13.0 come first.
var places = []string{
	"advise a 3 %d", "advisev2 a 3 %d", "advise a 5 %d", "advisev2 a 1 %d",
	"prefetch a %d s", "prefetchptsz a %d s", "prefetchv2 a %d s", "prefetchv2ptsz a %d s", "prefetch a %d 0",
	"prefetchbatch a %d s", "prefetchbatchptsz a %d 0", "discardprefetch a %d s", "discardprefetchptsz a %d 0",
	"discard a %d s", "discardptsz a %d 0",
}

// before13 returns the calls that drivers before CUDA 13 have, too.
func before13() []string {
	return slices.DeleteFunc(slices.Clone(places), func(call string) bool {
		return strings.Contains(call, "batch") || strings.Contains(call, "discard")
	})
}

// TestManagedMemoryStaysCharged: managed memory is charged as a whole to the device on which it was allocated, wherever
// its pages are moved, and whether the driver succeeds or not.
func TestManagedMemoryStaysCharged(t *testing.T) {
	const limit, bytes = 8 * mib, 5*mib + 1
	everyWay(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("stream s", "ok")
		p.Want("context other 1", "ok")
		p.Want("alloc there 1M", "ok")
		p.Want("use first", "ok")
		p.Want(fmt.Sprintf("managed a %d", bytes), "ok")
		check := func(call string) {
			t.Helper()
			holds(t, m, pid, 0, bytes)
			holds(t, m, pid, 1, mib)
			if t.Failed() {
				t.Fatalf("after %s", call)
			}
		}
		calls := before13()
		if !strings.HasSuffix(t.Name(), "gpa") { // the driver of that way does not find newer functions
			calls = places
		}
		for _, call := range calls {
			for _, device := range []int{1, -1, 0} {
				p.Want(fmt.Sprintf(call, device), "ok")
			}
			m.Sim("fail", "cuMemAdvise*:1:999")
			m.Sim("fail", "cuMemPrefetch*:1:999")
			m.Sim("fail", "cuMemDiscard*:1:999")
			p.Want(fmt.Sprintf(call, 1), "err 999")
			m.Sim("clear")
			check(call)
		}
		p.Want("prefetch a 2 s", "err 101")
		p.Want("prefetch there 0 s", errInvalidValue)
		p.Want("advise there 3 0", errInvalidValue)
		p.Want("sync s", "ok")
		exactly(p, limit-bytes)
		p.Want("use other", "ok")
		exactly(p, limit-mib)
		p.Want("free a", "ok")
		holds(t, m, pid, 0, 0)
		holds(t, m, pid, 1, mib)
		exactly(p, limit-mib)
		p.Want("use first", "ok")
		exactly(p, limit)
	})
}

// TestPeersTakeNothing: access from another device changes neither the owner of memory nor its device.
func TestPeersTakeNothing(t *testing.T) {
	const limit = 8 * mib
	everyWay(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		check := func(first, second uint64) {
			t.Helper()
			holds(t, m, pid, 0, first)
			holds(t, m, pid, 1, second)
		}
		p.Want("stream s", "ok")
		p.Want("alloc a 1M", "ok")
		p.Want("create b 2M", "ok")
		p.Want("reserve r 8M", "ok")
		p.Want("map r 0 2M b", "ok")
		p.Want("pool own", "ok")
		p.Want("allocpool c 1M s own", "ok")
		p.Want("context other 1", "ok")
		p.Want("alloc there 3M", "ok")
		p.Want("peer first", "ok")
		p.Want("peer first", "err 704")
		p.Want("use first", "ok")
		p.Want("peer other", "ok")
		p.Want("access r 0 2M 0", "ok")
		p.Want("access r 0 2M 1", "ok")
		p.Want("poolshow own 1 3", "ok")
		check(4*mib, 3*mib)
		// Mapped in the other device's context, it still belongs to the first device.
		p.Want("use other", "ok")
		p.Want("map r 2M 2M b", "ok")
		p.Want("create d 2M 1", "ok")
		p.Want("map r 4M 2M d", "ok")
		p.Want("retain e r 0", "ok")
		check(4*mib, 5*mib)
		exactly(p, limit-5*mib)
		p.Want("use first", "ok")
		exactly(p, limit-4*mib)
		p.Want("use other", "ok")
		p.Want("releasemem b", "ok")
		p.Want("unmap r 0 6M", "ok")
		check(4*mib, 5*mib) // because of e
		p.Want("releasemem e", "ok")
		p.Want("releasemem d", "ok")
		check(2*mib, 3*mib)
		p.Want("free a", "ok") // while the other context is current
		check(mib, 3*mib)
		p.Want("unpeer first", "ok")
		p.Want("unpeer first", "err 705")
		p.Want("destroy first", "ok")
		check(mib, 3*mib) // pool memory outlives the context
		p.Want("free c", "ok")
		p.Want("pooldestroy own", "ok")
		check(0, 3*mib)
		exactly(p, limit-3*mib)
	})
}

// TestPoolsOfTheOtherDevice: a block of a pool is charged to the pool's device, not to the stream's or the current
// context's. This also holds for a pool that the library sees for the first time.
func TestPoolsOfTheOtherDevice(t *testing.T) {
	const limit = 8 * mib
	everyWay(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("alloc here 1M", "ok")
		p.Want("stream s", "ok")
		p.Want("context other 1", "ok")
		p.Want("alloc there 2M", "ok")
		p.Want("stream t", "ok")
		p.Want("pool own 1", "ok")
		for _, c := range []struct {
			current, alloc, free string
			device               int
		}{
			{"first", "allocpool a %d s default", "freeasync a s", 1}, // default means the other device's default pool
			{"first", "poolptsz a %d 0 default", "freeptsz a 0", 1},
			{"first", "allocpool a %d s own", "freeasync a s", 1},
			{"first", "poolptsz a %d 0 own", "freeptsz a 0", 1},
			{"first", "allocpool a %d s own", "freeasync a t", 1}, // another stream frees it
			{"first", "allocpool a %d s own", "free a", 1},
			{"other", "allocpool a %d s own", "freeasync a s", 1},
			{"first", "allocasync a %d t", "freeasync a s", 1}, // allocated from the stream's device
			{"other", "allocptsz a %d s", "freeptsz a t", 0},
			{"other", "allocasync a %d 0", "free a", 1},
		} {
			held := [2]uint64{mib, 2 * mib}
			p.Want("use "+c.current, "ok")
			p.Want(fmt.Sprintf(c.alloc, limit-held[c.device]+1), errOutOfMemory)
			p.Want(fmt.Sprintf(c.alloc, limit-held[c.device]), "ok")
			held[c.device] = limit
			holds(t, m, pid, 0, held[0])
			holds(t, m, pid, 1, held[1])
			p.Want(c.free, "ok")
			// When its device is synchronised, a pool releases all memory freed by then, on any stream.
			for _, context := range []string{"first", "other", "first"} {
				p.Want("use "+context, "ok")
				p.Want("syncall", "ok")
			}
			holds(t, m, pid, 0, mib)
			holds(t, m, pid, 1, 2*mib)
			if t.Failed() {
				t.Fatalf("by %+v", c)
			}
		}
		p.Want("use other", "ok")
		exactly(p, limit-2*mib)
		p.Want("use first", "ok")
		exactly(p, limit-mib)
	})
}
