package daemon

// This file notes what a reply gives its client, and takes it back if the connection ends before the client has read the reply.

import (
	"github.com/gpuarb/gpuarb/arbiter"
)

// noteReceiptLocked notes the receipt of a reply that is about to be sent.
func (cl *client) noteReceiptLocked(r receipt) {
	if r.lease != nil && r.got == (arbiter.Receipt{}) || r == (receipt{}) {
		return
	}
	cl.last = r
	cl.unread.Store(true)
}

// takeBackLocked takes back what the last reply gave, at most once. It is called when a connection ended before the client read the reply.
func (cl *client) takeBackLocked() {
	d, r := cl.d, cl.last
	switch {
	case !cl.unread.Swap(false):
	case r.s != nil:
		d.endSessionLocked(r.s)
	case r.job != nil:
		if r.job.repliedTo == cl { // else the runner has asked again on another connection, and was told of the job there
			d.endRunnerLocked(r.job)
		}
	case !cl.s.dead && cl.s.resumes == cl.resumes: // else the client has resumed and reported what it holds
		d.keepObjectsLocked(r.lease, r.got.What, d.arb.TakeBack(d.now(), r.got))
	}
}
