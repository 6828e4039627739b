package entrypoints

import (
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows that arrays and memory with handles stay charged when a new daemon takes over. pool_test.go
// and host_test.go show the same for pooled memory and for host memory.

// TestHandlesAfterADaemonDied: the next daemon counts memory with handles as well, even if it finds no state of the last
// daemon.
func TestHandlesAfterADaemonDied(t *testing.T) {
	const limit = 8 * mib
	everyWay(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("reserve r 4M", "ok")
		p.Want("create a 4M", "ok")
		p.Want("map r 0 4M a", "ok")
		p.Want("releasemem a", "ok")
		p.Want("array b 1000 10 1 1", "ok")
		p.Want("mipmap c 100 30 5 1 1 0 4", "ok")
		const held = 4*mib + 10000 + 16711
		holds(t, m, pid, 0, held)
		m.Kill()
		m.Start()
		exactly(p, limit-held)
		holds(t, m, pid, 0, held)
		p.Want("unmap r 0 4M", "ok")
		p.Want("arraydestroy b", "ok")
		p.Want("mipmapdestroy c", "ok")
		holds(t, m, pid, 0, 0)
		exactly(p, limit)
	})
}
