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

// Where there is no event to be had, the end of a stream settles what was freed there.
func TestAgainWithoutEvents(t *testing.T) {
	const limit = 2 << 20
	everyWayExactly(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		m.Sim("fail", "cuEventCreate:*:999")
		for range 2 {
			p.Want("stream a", "ok")
			p.Want("allocasync x 2M a", "ok")
			p.Want("gate a", "ok")
			p.Want("freeasync x a", "ok")
			keeps(t, m, pid, limit, 0)
			p.Want("alloc y 1", errOutOfMemory)
			p.Want("open", "ok")
			p.Want("sync a", "ok")
			keeps(t, m, pid, 0, 0) // the stream itself was asked
			p.Want("allocasync x 2M a", "ok")
			p.Want("freeasync x a", "ok")
			p.Want("streamdestroy a", "ok")
			p.Want("syncall", "ok")
			keeps(t, m, pid, 0, 0)
		}
		exactly(p, limit)
	})
}
