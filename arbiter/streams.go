package arbiter

import (
	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// This file lends the count of a lease's streams to its client: then the client counts a stream that is made or destroyed in the word of its
// page, which has the cap as well, and does not tell the daemon. While the count is lent the ledger has the count of the last look; streams and
// takeStreams bring it up to date. A stream lives in a context, which keeps the slot. So the count is lent as long as the lease has a
// context; before and afterwards, and where each stream is charged or is its thread's, the client asks.

// maxRestoredStreams is how many streams are believed of a word that the daemon before this one lent.
const maxRestoredStreams = 1 << 16

// streams returns how many streams a lease has at this moment.
func (a *Arbiter) streams(l *lease) int {
	if l.delegated {
		if n, lent := l.word.Streams(); lent {
			a.setStreams(l, min(n, l.delegatedMax))
		}
	}
	return l.Streams()
}

// setStreams has the ledger count so many.
func (a *Arbiter) setStreams(l *lease, n int) {
	l.Release(accounting.Streams, accounting.Bytes(max(0, l.Streams()-n)))
	l.Force(accounting.Streams, accounting.Bytes(max(0, n-l.Streams())))
}

// revokeStreams takes a lease's count back from its client, which asks from here on.
func (a *Arbiter) revokeStreams(l *lease) {
	if !l.delegated {
		return
	}
	if n, lent := l.word.CloseStreams(); lent {
		a.setStreams(l, min(n, l.delegatedMax))
		l.delegated = false
	}
}

// DelegateStreams lends a lease's client the count of its streams, where that may be. The caller has
// written down what the last decision left of them.
func (a *Arbiter) DelegateStreams(id LeaseID) {
	l := a.leases[id]
	if l == nil {
		return
	}
	if a.revokeStreams(l); a.delegable(l) && l.word.OpenStreams(l.Streams(), l.StreamsMax()) {
		l.delegated, l.delegatedMax = true, max(l.Streams(), l.StreamsMax())
	}
}

// delegable reports whether a client may count its streams itself: its contexts keep the slot that the streams need, whatever becomes of these.
func (a *Arbiter) delegable(l *lease) bool {
	return l.session.alive() && !l.lost && l.countable() && l.contexts > 0 && l.slot != nil
}

// countable tells whether a lease's streams are a number and no more: not charged, and nobody's of its threads.
func (l *lease) countable() bool {
	return l.scope != rules.ScopeThread && l.session.streamReserve() == 0
}

// renewDelegation has a lease's count lent in the way that is right by now: with another streams.max, or not at all.
func (a *Arbiter) renewDelegation(l *lease) {
	if l.delegated {
		a.DelegateStreams(l.id)
	}
}

// checkDelegation takes the count back where it may not be lent any more.
func (a *Arbiter) checkDelegation(l *lease) {
	if l.delegated && !a.delegable(l) {
		a.revokeStreams(l)
	}
}
