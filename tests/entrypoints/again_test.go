package entrypoints

import (
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// A stream that ended with a free on its way is not the next one, though that has its
// handle: what was freed there is not the next one's to use at once.
func TestAgainAStream(t *testing.T) {
	const limit = 2 << 20
	everyWayExactly(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("stream a", "ok")
		p.Want("allocasync x 2M a", "ok")
		p.Want("gate a", "ok")
		p.Want("freeasync x a", "ok")
		p.Want("streamdestroy a", "ok")
		p.Want("stream b", "ok")
		p.Want("allocasync y 2M b", errOutOfMemory)
		keeps(t, m, pid, limit, 0)
		p.Want("open", "ok")
		p.Want("allocasync y 2M b", "ok")
		keeps(t, m, pid, limit, 0)
		p.Want("freeasync y b", "ok")
		p.Want("sync b", "ok")
		keeps(t, m, pid, 0, 0)
		if peak := m.SimNumber("peak", "0"); peak != limit {
			t.Errorf("the driver saw %d bytes at once, the limit is %d", peak, limit)
		}
	})
}
