package arbiter

import (
	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// The count of a lease's streams is lent to its client where nobody but that client is concerned: then a stream
// that is made or destroyed is told to nobody. While it is lent the ledger has the count that was last
// looked at; streams and takeStreams bring it up to date. It is not lent while the streams alone keep a slot
// that somebody waits for, so the search for who waits for each other can go by the ledger.

// believedStreams is how many streams are believed of a word that the daemon before this one lent.
const believedStreams = 1 << 16

// streams returns how many streams a lease has at this moment.
func (a *Arbiter) streams(l *lease) int {
	if l.lent {
		if n, lent := l.word.Streams(); lent {
			a.setStreams(l, min(n, l.lentMost))
		}
	}
	return l.Streams()
}

// setStreams has the ledger count so many.
func (a *Arbiter) setStreams(l *lease, n int) {
	l.Release(accounting.Streams, accounting.Bytes(max(0, l.Streams()-n)))
	l.Force(accounting.Streams, accounting.Bytes(max(0, n-l.Streams())))
}

// takeStreams takes a lease's count back from its client, which asks from here on.
func (a *Arbiter) takeStreams(l *lease) {
	if !l.lent {
		return
	}
	if n, lent := l.word.CloseStreams(); lent {
		a.setStreams(l, min(n, l.lentMost))
		l.lent = false
	}
}

// LendStreams lends a lease's client the count of its streams, where that may be. The caller has
// written down what the last decision left of them.
func (a *Arbiter) LendStreams(id LeaseID) {
	l := a.leases[id]
	if l == nil {
		return
	}
	if a.takeStreams(l); a.lendable(l) && l.word.OpenStreams(l.Streams(), l.StreamsMax()) {
		l.lent, l.lentMost = true, max(l.Streams(), l.StreamsMax())
	}
}

// lendable tells whether a client may count its streams itself: they cost nobody anything, and the slot that they
// need is there as long as they are, with nobody who waits to hear that the last of them is gone.
func (a *Arbiter) lendable(l *lease) bool {
	return l.session.alive() && !l.lost && l.countable() && l.settled() && l.session.slots == 0 &&
		(l.contexts > 0 || !l.device.overfull() && !l.device.entry[permit.Slot].watched)
}

// countable tells whether a lease's streams are a number and no more: not charged, and nobody's of its threads.
func (l *lease) countable() bool {
	return l.scope != rules.ScopeThread && l.session.streamReserve() == 0
}

// relend has a lease's count lent in the way that is right by now: with another streams.max, or not at all.
func (a *Arbiter) relend(l *lease) {
	if l.lent {
		a.LendStreams(l.id)
	}
}

// unlend takes the count back where it may not be lent any more.
func (a *Arbiter) unlend(l *lease) {
	if l.lent && !a.lendable(l) {
		a.takeStreams(l)
	}
}

// streaming reports whether a lease has a stream. Where it has none, it asks for the next: there may be no slot for it then.
func (a *Arbiter) streaming(l *lease) bool {
	if a.streams(l) > 0 {
		return true
	}
	a.takeStreams(l)
	return l.Streams() > 0
}
