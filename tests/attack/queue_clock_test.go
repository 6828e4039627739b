package attack

import (
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/internal/statefile"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds that the order of waiting requests survives a restart of the daemon even if the machine's clock was
// set back. queue_test.go has the order without that.

// TestOrderWithClockSetBack checks the order of the queue if the machine's clock was an hour ahead while the last
// daemon ran. A request that waited with that daemon keeps its place before a request that is new to the next daemon,
// although the new request arrives there first.
func TestOrderWithClockSetBack(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Config: waiting})
	holder, early, late := partyOf(t, m, 900*mib), partyOf(t, m, 0), partyOf(t, m, 0)
	first := early.ask(t.Context(), 600*mib)
	first.parked()
	m.Kill()
	_ = first.end()
	f, _, err := statefile.Open(m.Socket + ".state")
	check(t, err)
	f.Tickets.Each(func(_ int, r *statefile.Ticket) { r.Arrival += uint64(time.Hour) })
	check(t, f.Close())
	m.Start()
	for _, p := range []*party{holder, early, late} {
		p.resume()
	}
	second := late.ask(t.Context(), 600*mib) // the daemon delays it until the first is served
	first = first.again()
	if n := first.parked(); n.Position != 1 {
		t.Errorf("the request that was there before has position %d", n.Position)
	}
	if n := second.parked(); n.Position != 2 {
		t.Errorf("the new request has position %d", n.Position)
	}
	holder.free(900 * mib)
	first.granted()
	early.free(600 * mib)
	second.granted()
}
