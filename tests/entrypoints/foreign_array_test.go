package entrypoints

import (
	"fmt"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows that arrays over memory of another API are not charged, and that a free behind a semaphore of
// another API stays pending. foreign_test.go has the other imports of memory.

// TestForeignArrays: a mipmapped array over memory that another API exported is not charged to any process. This holds
// when it is made, refused, destroyed, or ends with its context.
func TestForeignArrays(t *testing.T) {
	const limit = 8 * mib
	between(t, limit, func(t *testing.T, m *rig.Machine, owner, other *rig.Program) {
		owner.Want("createshared a 4M", "ok")
		fd := owner.Number("exportfd a")
		for _, p := range []*rig.Program{owner, other} {
			own := uint64(0)
			if p == owner {
				own = 4 * mib // charged once
			}
			external := fmt.Sprintf("external e %d %d 4M", owner.PID(), fd)
			level := func(offset, levels int) string {
				return fmt.Sprintf("externalarray m e %d 1024 512 0 %d 4 0 %d", offset, u16, levels)
			}
			p.Want(external, "ok")
			m.Sim("fail", "cuExternalMemoryGetMappedMipmappedArray:1:999")
			p.Want(level(0, 1), "err 999")
			m.Sim("clear")
			p.Want(level(1, 1), errInvalidValue) // from offset 1 on, the imported memory has less than the 4M of the array
			p.Want(level(0, 2), errInvalidValue)
			for range 3 {
				p.Want(level(0, 1), "ok")
				holds(t, m, p.PID(), 0, own)
				exactly(p, limit-own)
				m.Sim("fail", "cuMipmappedArrayDestroy:1:999")
				p.Want("mipmapdestroy m", "err 999")
				m.Sim("clear")
				p.Want("mipmapdestroy m", "ok")
				p.Want("mipmapdestroy m", errInvalidHandle)
				exactly(p, limit-own)
			}
			p.Want("context c", "ok")
			p.Want(level(0, 1), "ok")
			p.Want("destroy c", "ok")
			p.Want("mipmapdestroy m", errInvalidHandle)
			p.Want("externaldestroy e", "ok")
			holds(t, m, p.PID(), 0, own)
			exactly(p, limit-own)
		}
	})
}

// TestForeignSemaphores: a stream waits for a semaphore of another API. Frees behind it are pending.
func TestForeignSemaphores(t *testing.T) {
	const limit, bytes = 8 * mib, 3000001
	everyWayExactly(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("stream s", "ok")
		p.Want("stream other", "ok")
		m.Sim("fail", "cuImportExternalSemaphore:1:999")
		p.Want("semaphore x", "err 999")
		m.Sim("clear")
		p.Want("semaphore x", "ok")
		p.Want(fmt.Sprintf("allocasync a %d s", bytes), "ok")
		p.Want("semwait x s", "ok")
		p.Want("freeasync a s", "ok")
		keeps(t, m, pid, bytes, 0)
		p.Want("query s", "err 600")
		p.Want("semsignal x other", "ok")
		p.Want("sync s", "ok")
		keeps(t, m, pid, 0, 0)
		p.Want("semdestroy x", "ok")
		p.Want("semdestroy x", errInvalidHandle)
		p.Want("semsignal x other", errInvalidHandle)
		exactly(p, limit)
	})
}
