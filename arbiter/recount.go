package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// This file compares what a client that resumes says of itself with the books, and counts what it holds beyond them as asking would have counted it.

// Recount takes a living client's own sum of the bytes that it uses in a lease, at a moment when none of them moves: when it resumes its
// session. If it is less than the arbiter has granted, the client did not receive some answers: their bytes go back, and the client asks
// again for them. If it is more, the client took bytes while there was no daemon. The arbiter counts as many of these as it would have granted, or as the
// device shows ([Arbiter.Shows]); a client's word alone takes no room from other programs.
//
// Recount returns what is granted then; it touches no credit. A lease that is unknown, ended, lost or spoiled stays as it is. The caller must call
// [Arbiter.Freed] when the word knows what is granted: waiting requests are served then, when the lease's slot is free too if the lease holds
// nothing. A request that needs the slot would otherwise lose the bytes to a later request that needs none.
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
		p := &l.session.process
		shown := min(a.UsageShown(l.device.Index, p.PID, p.StartTicks), l.device.Total)
		if counts := min(used, max(known.Plus(a.excessOf(l)).Plus(l.Room()), shown)); counts > known {
			l.Force(accounting.Memory, counts-known)
			a.explainUsage(l, counts-known)
			l.unverified = true
			a.changed() // a narrower budget may have no room now for requests that wait
			if l.slotCount() == 0 {
				a.restoreObjects(now, l, nil)
			}
		}
	}
	a.noteChain(l)
	return l.Granted()
}

// UsageShown returns the bytes that a process uses on a device by the device's last reading; accounting.Max if the device does not say that, or does not
// answer.
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

// Objects takes a living client's own word, after a Recount, for all that its threads have made in
// a lease and hold, and have not given back. What it does not name was granted or given back by messages that
// were lost, and is free. What it names beyond what is known of was made while there was no
// daemon: it counts, streams as far as there is room for what each is charged. It takes no slot that the lease had not,
// unless one is free. Objects returns how many there are then.
func (a *Arbiter) Objects(now time.Time, id LeaseID, makers []Maker) (streams, contexts int) {
	l := a.leases[id]
	if l == nil {
		return 0, 0
	}
	if l.session.alive() && !l.lost {
		defer a.cycle(now)
		for _, m := range makers {
			streams, contexts = streams+m.Streams, contexts+m.Contexts
		}
		a.revokeStreams(l)
		a.recountStreams(now, l, streams)
		if contexts < l.contexts {
			a.unmakeContexts(now, l, 0, l.contexts-contexts)
		}
		l.contexts = min(contexts, maxObjects)
		a.recountThreads(now, l, makers)
		a.dropUnusedSlots(now, l)
	}
	return l.Streams(), l.contexts
}

// recountStreams has a lease hold so many streams.
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
	a.recost(now, l, func() {})
}

// recountThreads has the threads of a lease hold what is said of them, and nothing else.
func (a *Arbiter) recountThreads(now time.Time, l *lease, makers []Maker) {
	had := l.slotCount()
	l.makers.UnmakeAll()
	l.holds = 0
	for _, said := range makers {
		l.holds = min(l.holds+said.Holds, maxObjects)
		said.Thread = a.trackThread(l, said.Thread)
		l.makers.Make(said)
	}
	a.forgetThreads(now, l)
	given := had - l.slotCount() // back, just now
	for _, said := range makers {
		if said.Contexts+said.Streams+said.Holds == 0 || a.hasSlot(l, said.Thread) {
			continue
		}
		if given > 0 || a.slotIsFree(l, said.Thread) {
			a.takeSlot(now, l, said.Thread)
			given--
		}
	}
}
