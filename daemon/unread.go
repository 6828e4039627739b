package daemon

import (
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/shim"
)

// receipt describes an undelivered grant: what the last reply on a connection gave its client. A client that sends its next request has read the
// reply. If the connection ends before that, the daemon takes the grant back, and the client does not count it. The zero receipt: nothing was given.
type receipt struct {
	job   *job            // job that was opened; nil: none
	s     *session        // session that was opened; nil: none
	lease *shim.Lease     // lease whose request was granted; nil: none
	got   arbiter.Receipt // grant for lease
}

// gaveLocked notes the receipt of a reply that is about to be sent.
func (cl *client) gaveLocked(r receipt) {
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
		if r.job.told == cl { // else the runner has asked again on another connection, and was told of the job there
			d.endRunnerLocked(r.job)
		}
	case !cl.s.dead && cl.s.taken == cl.taken: // else the client has resumed and reported what it holds
		d.keepObjectsLocked(r.lease, r.got.What, d.arb.TakeBack(d.now(), r.got))
	}
}
