package daemon

import (
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/shim"
)

// receipt is what a reply gave, for as long as the client is not known to have read it. A client
// that goes without that counts nothing for it. The zero receipt is nothing.
type receipt struct {
	request uint64
	job     *job            // that was opened
	s       *session        // that was opened; with got, whose lease was given it
	taken   int             // how often the session had been taken up again
	lease   *shim.Lease     // that was given got
	got     arbiter.Receipt // what its request was granted
}

// gaveLocked notes what a reply that is about to be sent gives.
func (cl *client) gaveLocked(r receipt) {
	if r.lease != nil && r.got == (arbiter.Receipt{}) || r == (receipt{}) {
		return
	}
	cl.last = r
	cl.unread.Store(true)
}

// takeBackLocked undoes, once, what a reply gave that was not read.
func (cl *client) takeBackLocked() {
	d, r := cl.d, cl.last
	switch {
	case !cl.unread.Swap(false):
	case r.job != nil:
		d.endRunnerLocked(r.job)
	case r.lease == nil:
		d.endSessionLocked(r.s)
	case !r.s.dead && r.s.taken == r.taken: // else its own sums have settled it
		d.keepObjectsLocked(r.lease, r.got.What, d.arb.TakeBack(d.now(), r.got))
	}
}

// unsent is for a reply that could not be sent.
func (cl *client) unsent() {
	cl.d.lock()
	defer cl.d.unlock()
	if !cl.d.stopping() {
		cl.takeBackLocked()
	}
}

// hasRead is for a client that has what a reply to this request gave.
func (cl *client) hasRead(request uint64) {
	if cl != nil && cl.last.request == request {
		cl.unread.Store(false)
	}
}
