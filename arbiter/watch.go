package arbiter

import (
	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// This file tells clients to report each free, while a request waits that could go on by it. cycle.go begins and ends that at each limit.

// contended reports whether a request waits for bytes at a limit above a lease, or a request of its own job waits. The idle credit of a
// waiting job must be taken back, or the job would seem to hold memory in the search for deadlocks.
func (l *lease) contended() bool {
	if len(l.session.job.tickets) > 0 {
		return true
	}
	for sh := range l.session.shares {
		if sh.limitOn(l.device).watched {
			return true
		}
	}
	return l.device.bytes.watched
}

// wanted reports whether a request waits that could go on by what a lease frees.
func (l *lease) wanted() bool {
	return l.contended() || l.device.permitLimits[permit.Slot].watched && l.slotByBytes()
}

// slotByBytes reports whether a lease may keep a slot for nothing but memory, so that a free may give the slot back.
func (l *lease) slotByBytes() bool {
	if l.scope != rules.ScopeThread || l.slot != nil {
		return l.contexts == 0 && l.Streams() == 0
	}
	return l.makers.HasMemoryOnly()
}

// setNotify sets NOTIFY in a lease's credit word if a waiting request could go on by what the lease frees. Freed clears the flag, when a free is
// reported that no request waits for.
func (a *Arbiter) setNotify(l *lease) {
	if l.notify || l.lost || !l.session.alive() || !l.wanted() {
		return
	}
	l.notify = true
	a.updateFlags(l)
}

// watchLease tells a lease's client to report what it frees from now on, and then takes back the lease's idle credit.
func (a *Arbiter) watchLease(l *lease) {
	a.setNotify(l)
	a.recallAll(l)
}
