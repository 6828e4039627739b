package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file has the daemon's calls for requests of leases: requests for memory, streams, contexts and holds, and reports of freed objects
// and memory. decide.go decides requests that cannot be granted at once.

// Ask decides a request of a lease, or counts objects that the client gives back.
//
// A refusal changes nothing, with one exception. If other requests wait, or if slots belong to processes or threads, the lease loses a slot
// under which it holds nothing, and its idle credit. A request that could never fit is refused before any credit word is read; idle credit
// then counts as used in Remaining.
//
// The cost of a request for bytes that fits depends on the depth of the budget tree, and not on the number of leases. Ask reads the other
// leases below a limit only if that limit refuses the request.
//
// If slots are limited, the first object of a holder without a slot waits for a slot. The cost of a new context stays reserved until a
// reading of the device shows its memory.
func (a *Arbiter) Ask(now time.Time, r Request) Result {
	l := a.leases[r.Lease]
	if l == nil || !l.session.alive() {
		return Result{Reason: ReasonNoLease, Requested: r.Bytes, Explain: wording.LeaseEnded}
	}
	r.Managed = r.Managed && l.device.IsGPU() // memory of the processor cannot move out of it
	a.touch(now, l)
	if r.Asked && r.What == WantsContexts {
		l.undecided = max(l.undecided-r.Count, 0)
	}
	if r.What == WantsStreams {
		a.revokeStreams(l)
	}
	if r.What == WantsBytes {
		if r.Bytes == 0 && !l.gone() {
			return Result{Granted: true}
		}
	} else if r.Count = min(max(r.Count, -maxObjects), maxObjects); r.Count <= 0 || r.Noticed {
		defer a.cycle(now)
		a.countObjects(now, l, r)
		return l.counted(r.What, Result{Granted: true})
	}
	// The daemon knows the amount of an absent client's request only rounded up, and not whether it is managed memory. Such a request is
	// not refused here; the exact request of the client is.
	if v := a.neverFits(l, r.takes()); v.final && !r.Place.Absent {
		l.tallyRefusal(v.reason, v.refusal)
		return l.counted(r.What, a.refuse(now, l, v.reason, v.refusal, "", ""))
	}
	if r.DriverFullAgain {
		return l.counted(r.What, a.refuseDriverFull(now, l, r))
	}
	if r.What == WantsBytes {
		if l.closed { // recall freed bytes before the lease is granted more
			a.recallIfOver(now, l)
		}
		for other := range l.device.leasesAway {
			a.recallWhileAway(other)
		}
		if r.Managed {
			a.recallIdle(l, a.idle(l)) // idle credit counts on the device, and managed memory need not
		} else {
			a.moveManagedAway(l, r.Bytes)
		}
		waited := len(a.tickets) > 0 && (l.device.waiting > 0 || len(l.session.job.tickets) > 0)
		if l.keepsSlot() && !waited && !r.Place.Absent && !l.device.overfull() && l.session.slots == 0 && !r.DriverFull && a.grant(l, r.takes()) {
			delete(l.bursts, r.Thread)
			a.recordGrowth(now, l, r.Bytes)
			return Result{Granted: true, Receipt: r.Receipt()}
		}
	}
	t := &ticket{kind: r.What, job: l.session.job, session: l.session, lease: l, thread: r.Thread,
		bytes: r.Bytes, managed: r.Managed, count: r.Count, noWait: r.NoWait, aside: r.Aside, askedBefore: r.Again, read: r.Read, driverFull: r.DriverFull, place: r.Place}
	t.looked, t.waitAfter = r.Looked && !r.Chosen, r.waitAfter(l.session.job.Rule.WaitAfter)
	if r.Fresh {
		delete(l.bursts, r.Thread)
	} else if r.DriverFull { // the grant that the driver could not serve has reset the count of the burst, but the burst goes on
		t.waitAfter = 0
	}
	if r.What == WantsStreams {
		t.bytes = l.session.streamReserve().Times(uint64(r.Count))
	}
	defer a.cycle(now)
	if r.What == WantsBytes && l.contended() { // other requests wait: recall first what the client has freed
		a.recallAll(l)
	}
	a.decideNew(now, t)
	return t.result()
}

// waitAfter returns how many requests of a burst are refused instead of waiting. rule is the setting of the rule; nil: it has none.
func (r Request) waitAfter(rule *int) int {
	switch {
	case rule != nil && !r.Chosen:
		return *rule
	case r.Caches:
		return 1
	}
	return 0
}

// TakeBack undoes a grant whose reply the client never read. Bytes are added to the credit word of the lease, as if the client had freed
// them. If the word cannot take them, they stay counted until the client resumes and reports its own sum.
func (a *Arbiter) TakeBack(now time.Time, r Receipt) Result {
	if r.What != WantsBytes {
		return a.Ask(now, Request{Lease: r.Lease, What: r.What, Count: -r.Count, Thread: r.Thread})
	}
	if l := a.leases[r.Lease]; l != nil && l.word.Free(r.Bytes) {
		a.Freed(now, r.Lease)
	}
	return Result{Granted: true}
}

// Freed handles the report of a free that found NOTIFY set in the credit word. It recalls the freed bytes if a budget above the lease is
// exceeded or a request waits for them. If many requests wait, the cycle runs in a Tick that is due within 2 ms, so that many frees cost
// one cycle. Unknown leases are ignored.
func (a *Arbiter) Freed(now time.Time, id LeaseID) {
	l := a.leases[id]
	if l == nil || !l.session.alive() {
		return
	}
	defer a.cycleSoon(now)
	a.touch(now, l)
	a.recallIfOver(now, l)
	a.recallWhileAway(l)
	if l.contended() {
		a.recallAll(l)
	}
	a.dropUnusedSlots(now, l)
	if l.notify && !l.wanted() {
		l.notify = false
		a.updateFlags(l)
	}
}
