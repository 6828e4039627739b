package arbiter

import (
	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// This file delegates the stream count of a lease to its client. The client then counts streams that it creates or destroys in a word of
// its lease page, without a message to the daemon. The page has the maximum too. While the count is delegated, the ledger has the last
// value read; streams and revokeStreams update it. A stream lives in a context, and the context keeps the slot. So the count is delegated
// while the lease has a context. Without a context, or if streams are charged or belong to threads, the client asks for each stream.
// ask.go, objects.go and slots.go call this file.

// maxRestoredStreams is the largest stream count that is accepted from a page that an earlier daemon delegated.
const maxRestoredStreams = 1 << 16

// streams returns how many streams a lease has now.
func (a *Arbiter) streams(l *lease) int {
	if l.delegated {
		if n, delegated := l.word.Streams(); delegated {
			a.setStreams(l, min(n, l.delegatedMax))
		}
	}
	return l.Streams()
}

// setStreams sets the number of streams in the ledger.
func (a *Arbiter) setStreams(l *lease, n int) {
	l.Release(accounting.Streams, accounting.Bytes(max(0, l.Streams()-n)))
	l.Force(accounting.Streams, accounting.Bytes(max(0, n-l.Streams())))
}

// revokeStreams takes the stream count back from the client. The client then asks for each stream.
func (a *Arbiter) revokeStreams(l *lease) {
	if !l.delegated {
		return
	}
	if n, delegated := l.word.CloseStreams(); delegated {
		a.setStreams(l, min(n, l.delegatedMax))
		l.delegated = false
	}
}

// DelegateStreams delegates the stream count of a lease to its client, if that is allowed. The caller must have recorded the count after
// the last decision.
func (a *Arbiter) DelegateStreams(id LeaseID) {
	l := a.leases[id]
	if l == nil {
		return
	}
	if a.revokeStreams(l); a.delegable(l) && l.word.OpenStreams(l.Streams(), l.StreamsMax()) {
		l.delegated, l.delegatedMax = true, max(l.Streams(), l.StreamsMax())
	}
}

// delegable reports whether a client may count its streams itself. Its contexts must keep the slot that streams need.
func (a *Arbiter) delegable(l *lease) bool {
	return l.session.alive() && !l.lost && l.countable() && l.contexts > 0 && l.slot != nil && l.mayUse()
}

// countable reports whether the streams of a lease are only a number: they are not charged, and do not belong to threads.
func (l *lease) countable() bool {
	return l.scope != rules.ScopeThread && l.session.streamReserve() == 0
}

// renewDelegation delegates the count again with the present streams.max, or revokes it.
func (a *Arbiter) renewDelegation(l *lease) {
	if l.delegated {
		a.DelegateStreams(l.id)
	}
}

// checkDelegation revokes the count if it may not be delegated any more.
func (a *Arbiter) checkDelegation(l *lease) {
	if l.delegated && !a.delegable(l) {
		a.revokeStreams(l)
	}
}
