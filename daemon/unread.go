package daemon

import (
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/shim"
)

// receipt is what the last reply of a connection gave, for as long as the client is not known to have read it: a client that asks the next thing has.
// If the connection ends before that, the daemon takes it back, and the client counts nothing for it. The zero receipt is nothing.
type receipt struct {
	job   *job            // that was opened
	s     *session        // that was opened
	lease *shim.Lease     // that was given got
	got   arbiter.Receipt // what its request was granted
}

// gaveLocked notes what a reply that is about to be sent gives.
func (cl *client) gaveLocked(r receipt) {
	if r.lease != nil && r.got == (arbiter.Receipt{}) || r == (receipt{}) {
		return
	}
	cl.last = r
	cl.unread.Store(true)
}

// takeBackLocked undoes, once, what the last reply gave. It is for a connection that has ended with that reply unread.
func (cl *client) takeBackLocked() {
	d, r := cl.d, cl.last
	switch {
	case !cl.unread.Swap(false):
	case r.s != nil:
		d.endSessionLocked(r.s)
	case r.job != nil:
		if r.job.told == cl { // else its runner has asked again, and has read the reply on another connection
			d.endRunnerLocked(r.job)
		}
	case !cl.s.dead && cl.s.taken == cl.taken: // else the client has said itself what it has
		d.keepObjectsLocked(r.lease, r.got.What, d.arb.TakeBack(d.now(), r.got))
	}
}
