package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// Recount takes a living client's own sum of the bytes that it uses in a lease, at a
// moment when none of them moves: when it takes its session up again. Less than is
// known of means answers that never arrived: those bytes go back, and the client asks
// for them anew. More means bytes that were taken while there was no daemon: they count
// from here on, unverified. They are believed as far as they would be granted now or
// the device confirms them (figure: what it says that the process uses; accounting.Max
// where it says nothing), so that a word alone pushes nobody aside. Recount returns what
// is granted then, and how much was not believed; it touches no word. A lease that is
// unknown, ended, lost or spoiled stays as it is.
func (a *Arbiter) Recount(now time.Time, id LeaseID, used, figure accounting.Bytes) (granted, doubted accounting.Bytes) {
	l := a.leases[id]
	if l == nil {
		return 0, 0
	}
	defer a.turn(now)
	idle := a.idle(l)
	if !l.session.alive() || l.lost || l.spoiled {
		return l.sum.Granted(), 0
	}
	known := l.sum.Granted() - idle
	a.look(l)
	switch {
	case used < known:
		a.ledger.Release(l.sum, accounting.Memory, known-used)
	case used > known:
		most := max(known.Plus(a.excessOf(l)).Plus(a.ledger.Room(l.sum)), min(figure, l.device.Total))
		doubted = used.Less(most)
		if used -= doubted; used > known {
			a.ledger.Force(l.sum, accounting.Memory, used-known)
			a.named(l, used-known)
			l.unverified = true
			if l.slot == nil {
				a.restoreObjects(now, l, nil)
			}
		}
	}
	a.noteChain(l)
	a.checkAll(now)
	return l.sum.Granted(), doubted
}
