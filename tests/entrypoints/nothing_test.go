package entrypoints

import (
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows that allocations of zero bytes, and frees of their null address, change no charge.

// TestNothing: the driver answers a request for zero bytes with a null address. The request is not charged, and freeing the address returns no bytes.
func TestNothing(t *testing.T) {
	const limit = 8 * mib
	everyWay(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		p.Want("stream s", "ok")
		p.Want("alloc held 1M", "ok")
		for range 3 {
			for _, command := range []string{"allocasync a 0 s", "allocptsz b 0 s", "allocpool c 0 s", "host d 0", "hostflags e 0",
				"freeasync a s", "freeasync b s", "freeptsz c s", "freehost d", "freehost e", "freeunknown 0"} {
				p.Want(command, "ok")
			}
		}
		p.Want("sync s", "ok")
		holds(t, m, p.PID(), 0, mib)
		exactly(p, limit-mib)
	})
}
