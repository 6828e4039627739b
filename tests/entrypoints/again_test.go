package entrypoints

import (
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows that the charge and the host-memory count stay right when a stream or a context ends, also
// when the call that ends it fails at first. pool_test.go and host_test.go have the same memory while its
// stream and context live.

// TestAgainAStream: a stream ends with a pending free, and a new stream gets its handle. The
// freed memory does not become available to the new stream before the free has executed.
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

// TestAgainWithoutEvents: if the driver cannot create events, the library queries the stream itself. A free is pending
// until the stream has executed it.
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
			keeps(t, m, pid, 0, 0) // the library queried the stream itself
			p.Want("allocasync x 2M a", "ok")
			p.Want("freeasync x a", "ok")
			p.Want("streamdestroy a", "ok")
			p.Want("syncall", "ok")
			keeps(t, m, pid, 0, 0)
		}
		exactly(p, limit)
	})
}

// ends are the commands that begin and end a context, with the driver's function that ends it.
var ends = []struct{ begin, end, symbol string }{
	{"context c", "destroy c", "cuCtxDestroy_v2"},
	{"primary c", "release 0", "cuDevicePrimaryCtxRelease_v2"},
	{"primary c", "reset 0", "cuDevicePrimaryCtxReset_v2"},
}

// TestAgainAfterAContext: pending frees end with their context. If the call that ends the context fails, they
// stay pending.
func TestAgainAfterAContext(t *testing.T) {
	const limit = 2 << 20
	everyWayExactly(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		for _, c := range ends {
			p.Want(c.begin, "ok")
			p.Want("stream s", "ok")
			p.Want("allocasync a 2M s", "ok")
			p.Want("gate s", "ok")
			p.Want("freeasync a s", "ok")
			m.Sim("fail", c.symbol+":1:999")
			p.Want(c.end, "err 999")
			m.Sim("clear")
			keeps(t, m, pid, limit, 0)
			p.Want("open", "ok")
			p.Want("sync s", "ok")
			keeps(t, m, pid, 0, 0)
			p.Want("allocasync a 2M s", "ok")
			p.Want("freeasync a s", "ok")
			p.Want(c.end, "ok")
			p.Want("use first", "ok")
			p.Ask("release 0") // releases the context that the reset left retained
			exactly(p, limit)
		}
	})
}

// TestAgainHost: page-locked host memory is uncounted when its context ends, even if an earlier attempt to end the context failed.
func TestAgainHost(t *testing.T) {
	const limit = 1 << 20
	withHost(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		for _, c := range ends {
			p.Want(c.begin, "ok")
			p.Want("host a 2000", "ok")
			p.Want("register b 3000", "ok")
			m.Sim("fail", c.symbol+":1:999")
			p.Want(c.end, "err 999")
			m.Sim("clear")
			hostRest(t, m, p, limit, 5000)
			p.Want(c.end, "ok")
			p.Want("use first", "ok")
			p.Ask("release 0")
			hostRest(t, m, p, limit, 0)
		}
	})
}
