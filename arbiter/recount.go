package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// This file compares the sums that a resuming client reports with the ledger, and corrects the ledger. The daemon calls it; restore.go
// restores what a record confirms.

// Recount takes the bytes that a living client reports as used in a lease, when it resumes its session and no thread of it changes the sum.
// If the client uses less than was granted, it did not receive some grants: their bytes are released, and the client asks again. If it uses
// more, it took bytes while there was no daemon. Recount counts as many of these as Ask would have granted, or as the device shows
// ([Arbiter.UsageShown]), so that a false report takes no room from other programs.
//
// Recount returns the bytes granted after that. It changes no credit. An unknown, ended, lost or spoiled lease stays as it is. The caller
// must call [Arbiter.Freed] after it wrote the result to the credit word. Waiting requests are served only then, when the slot of a lease
// that holds nothing is free too. Otherwise a request that needs the slot could lose the bytes to a later request that needs none.
func (a *Arbiter) Recount(now time.Time, id LeaseID, used accounting.Bytes) (granted accounting.Bytes) {
	l := a.leases[id]
	if l == nil {
		return 0
	}
	idle := a.idle(l)
	if !l.session.alive() || l.lost || l.spoiled {
		return l.Granted()
	}
	known, away := l.Granted()-idle, l.Away()
	a.readUsage(l)
	switch {
	case used < known:
		l.Release(accounting.Memory, known-used)
		l.SetAway(max(l.Away(), min(away, l.word.Report().Managed)))
	case used > known:
		p := l.session.process
		shown := min(a.UsageShown(l.device.Index, p.PID, p.StartTicks), l.device.Total)
		if counts := min(used, max(known.Plus(a.excessOf(l)).Plus(l.Room()), shown)); counts > known {
			l.Force(accounting.Memory, counts-known)
			a.explainUsage(l, counts-known)
			l.unverified = true
			a.changed() // a narrower budget may have no room now for waiting requests
			if l.slotCount() == 0 {
				a.restoreObjects(now, l, nil)
			}
		}
	}
	a.noteChain(l)
	return l.Granted()
}

// UsageShown returns the bytes that a process uses on a device by the last reading. accounting.Max: the device does not report that, or
// does not answer.
func (a *Arbiter) UsageShown(device, pid int, startTicks uint64) accounting.Bytes {
	d := a.device(device)
	if d == nil {
		return 0
	}
	if d.unnamed || d.hung {
		return accounting.Max
	}
	if p := d.figures[pid]; p.StartTicks == 0 || startTicks == 0 || p.StartTicks == startTicks {
		return p.Bytes
	}
	return 0
}

// Objects takes the objects that the threads of a living client report for a lease, after a Recount. Objects that the client does not name
// were granted or given back by lost messages, and are released. Objects that only the client knows were made while there was no daemon.
// They are counted, streams as far as there is room for their charge. Objects takes a slot that the lease did not have only if one is free.
// It returns the numbers after that.
func (a *Arbiter) Objects(now time.Time, id LeaseID, makers []Maker) (streams, contexts int) {
	l := a.leases[id]
	if l == nil {
		return 0, 0
	}
	l.undecided = 0 // the requests of the last connection are not made again
	if l.session.alive() && !l.lost {
		defer a.cycle(now)
		for _, m := range makers {
			streams, contexts = streams+m.Streams, contexts+m.Contexts
		}
		a.revokeStreams(l)
		a.recountStreams(now, l, streams)
		if contexts < l.contexts {
			a.countEndedContexts(now, l, 0, l.contexts-contexts)
		}
		l.contexts = min(contexts, maxObjects)
		a.recountThreads(now, l, makers)
		a.dropUnusedSlots(now, l)
	}
	return l.Streams(), l.contexts
}

// recountStreams sets the number of streams of a lease, as far as there is room for their charge.
func (a *Arbiter) recountStreams(now time.Time, l *lease, n int) {
	known := l.Streams()
	if more := n - known; more > 0 {
		room := accounting.Bytes(more)
		if each := l.session.streamReserve(); each > 0 {
			room = min(room, l.Room()/each)
		}
		l.Force(accounting.Streams, room)
	}
	l.Release(accounting.Streams, accounting.Bytes(max(0, known-n)))
	a.updateCost(now, l, func() {})
}

// recountThreads replaces the objects of a lease's threads by the reported ones.
func (a *Arbiter) recountThreads(now time.Time, l *lease, makers []Maker) {
	had := l.slotCount()
	l.makers.UnmakeAll()
	l.holds = 0
	for _, reported := range makers {
		l.holds = min(l.holds+reported.Holds, maxObjects)
		reported.Thread = a.trackThread(l, reported.Thread)
		l.makers.Make(reported)
	}
	a.forgetThreads(now, l)
	returned := had - l.slotCount() // slots that forgetThreads has just given back
	for _, reported := range makers {
		if reported.Contexts+reported.Streams+reported.Holds == 0 || a.hasSlot(l, reported.Thread) {
			continue
		}
		if returned > 0 || a.slotIsFree(l, reported.Thread) {
			a.takeSlot(now, l, reported.Thread)
			returned--
		}
	}
}
