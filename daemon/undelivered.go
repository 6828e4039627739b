package daemon

// This file handles undelivered grants: it records what a reply gives its client, and takes it back if the connection
// ends before the client has read the reply. lock.go, serve.go and cancel.go call it.

import (
	"github.com/gpuarb/gpuarb/arbiter"
)

// noteReceiptLocked records the receipt of a reply that is about to be sent.
func (cl *client) noteReceiptLocked(r receipt) {
	if r.lease != nil && r.got == (arbiter.Receipt{}) || r == (receipt{}) {
		return
	}
	cl.last = r
	cl.unread.Store(true)
}

// takeBackLocked takes back the grant of the last reply, at most once. It is called if a connection ended before the
// client read the reply.
func (cl *client) takeBackLocked() {
	d, r := cl.d, cl.last
	switch {
	case !cl.unread.Swap(false):
	case r.s != nil:
		d.endSessionLocked(r.s)
	case r.job != nil:
		if r.job.repliedTo == cl { // otherwise the runner has asked again on another connection, which got the reply
			d.endRunnerLocked(r.job)
		}
	case !cl.s.dead && cl.s.resumes == cl.resumes: // otherwise the client has resumed and reported what it holds
		d.keepObjectsLocked(r.lease, r.got.What, d.arb.TakeBack(d.now(), r.got))
	}
}
