package arbiter

import (
	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// This file tells clients to report each free while a request waits that the free may help. cycle.go begins and ends the watch of each
// limit.

// contended reports whether a request waits for bytes at a limit above a lease, or a request of the lease's job waits. The idle credit of a
// waiting job must be recalled; otherwise the search for deadlocks would count it as held memory.
func (l *lease) contended() bool {
	if len(l.session.job.tickets) > 0 {
		return true
	}
	for sh := range l.session.shares {
		if sh.limitOn(l.device).watched {
			return true
		}
	}
	for j := l.session.job; j != nil; j = j.around {
		if at := j.at[l.device]; at != nil && at.watched {
			return true
		}
	}
	return l.device.bytes.watched
}

// wanted reports whether a request waits that a free of this lease may help.
func (l *lease) wanted() bool {
	return l.contended() || l.device.permitLimits[permit.Slot].watched && l.slotByBytes()
}

// slotByBytes reports whether only memory may keep a slot of this lease, so that a free may return the slot.
func (l *lease) slotByBytes() bool {
	if l.scope != rules.ScopeThread || l.slot != nil {
		return l.contexts == 0 && l.Streams() == 0
	}
	return l.makers.HasMemoryOnly()
}

// setNotify sets NOTIFY in the credit word of a lease, if a waiting request may be helped by what the lease frees. Freed clears the flag
// when a free is reported for which no request waits.
func (a *Arbiter) setNotify(l *lease) {
	if l.notify || l.lost || !l.session.alive() || !l.wanted() {
		return
	}
	l.notify = true
	a.updateFlags(l)
}

// watchLease tells the client of a lease to report each later free, and then recalls the idle credit of the lease.
func (a *Arbiter) watchLease(l *lease) {
	a.setNotify(l)
	a.recallAll(l)
}
