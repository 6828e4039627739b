package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// Ask decides on a request of a lease, or counts what it gives back. Refused, nothing has moved
// (but a slot with nothing in it goes back where others wait or slots are narrower than jobs, and
// idle credit with it); larger than could ever fit, no word was even looked at (idle credit then
// counts as used in Remaining). For bytes its cost is the depth of the tree of budgets, however
// many leases there are; only a request that is about to be refused looks at the others at that
// limit. The first object of who has no slot waits for one. The cost of a context is reserved
// until the device's own figures show it.
func (a *Arbiter) Ask(now time.Time, r Request) Result {
	l := a.leases[r.Lease]
	if l == nil || !l.session.alive() {
		return Result{Reason: ReasonNoLease, Requested: r.Bytes, Explain: wording.LeaseEnded}
	}
	r.Managed = r.Managed && l.device.IsGPU() // the processor's memory does not move out of it
	a.touch(now, l)
	if r.What == WantsStreams {
		a.takeStreams(l)
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
	if v := a.never(l, r.takes()); v.final {
		return l.counted(r.What, a.refuse(now, l, v.reason, v.refusal, "", ""))
	}
	if r.What == WantsBytes {
		if l.closed { // what was freed goes back before anything is given
			a.settle(now, l)
		}
		for other := range l.device.aparts {
			a.takeApart(other)
		}
		if r.Managed {
			a.take(l, a.idle(l)) // idle credit counts against the device, managed memory need not
		} else {
			a.giveWay(l, r.Bytes)
		}
		waited := len(a.tickets) > 0 && (l.device.waiting > 0 || len(l.session.job.tickets) > 0)
		if l.settled() && !waited && !r.Place.Absent && !l.device.overfull() && l.session.slots == 0 && a.grant(l, r.takes()) {
			a.grew(now, l, r.Bytes)
			return Result{Granted: true, Receipt: r.Receipt()}
		}
	}
	t := &ticket{kind: r.What, job: l.session.job, session: l.session, lease: l, thread: r.Thread,
		bytes: r.Bytes, managed: r.Managed, count: r.Count, noWait: r.NoWait, aside: r.Aside, asked: r.Again, place: r.Place}
	if r.What == WantsStreams {
		t.bytes = l.session.streamReserve().Times(uint64(r.Count))
	}
	defer a.cycle(now)
	if r.What == WantsBytes && l.contended() { // what it freed goes back before it gets more than others
		a.recallAll(l)
	}
	a.ask(now, t)
	return t.result()
}

// TakeBack takes back what a client never heard that it was granted. Bytes become credit of the lease, as if
// the client had freed them; where they cannot, its own sum settles them when it resumes.
func (a *Arbiter) TakeBack(now time.Time, r Receipt) Result {
	if r.What != WantsBytes {
		return a.Ask(now, Request{Lease: r.Lease, What: r.What, Count: -r.Count, Thread: r.Thread})
	}
	if l := a.leases[r.Lease]; l != nil && l.word.Free(r.Bytes) {
		a.Freed(now, r.Lease)
	}
	return Result{Granted: true}
}

// takes is what a request adds to the sums by itself.
func (r *Request) takes() accounting.Amounts {
	if r.What == WantsStreams {
		return accounting.Amounts{accounting.Streams: accounting.Bytes(r.Count)}
	}
	if r.Managed {
		return accounting.Apart(r.Bytes)
	}
	return accounting.Whole(r.Bytes)
}

// counted returns the result of a ticket with how many there are of what a lease asks for.
func (t *ticket) counted(r Result) Result {
	if t.lease == nil {
		return r
	}
	return t.lease.counted(t.kind, r)
}

// counted returns a result with how many of what there are.
func (l *lease) counted(what What, o Result) Result {
	switch what {
	case WantsStreams:
		o.Current, o.Max = l.Streams(), l.StreamsMax()
	case WantsContexts, WantsHolds:
		o.Current = l.contexts
	}
	return o
}

// settled reports that a lease has a slot that is its own for as long as it holds something.
func (l *lease) settled() bool {
	h := l.slot
	return h != nil && (h.kept || h.Process != nil || l.scope == "" || l.scope == rules.ScopeJob)
}

// touch notes that a lease asked for something.
func (a *Arbiter) touch(now time.Time, l *lease) {
	l.touched = now
	if j := l.session.job; len(j.tickets) > 0 {
		j.moved = now
	}
}

// grant hands memory out if it fits.
func (a *Arbiter) grant(l *lease, all accounting.Amounts) bool {
	n, before := all[accounting.Memory], l.Granted()
	if l.Reserve(all) != nil {
		return false
	}
	l.word.Grant(before, n)
	if all[accounting.Present] == 0 { // managed memory
		l.beyond.Apart(n)
		a.noteAway(l)
	}
	a.look(l)
	if !l.contended() {
		a.surplus(l)
	}
	l.admitted++
	l.device.admitted++
	a.stats.Admitted++
	return true
}

// reasonOf says whose limit refused.
func reasonOf(r *accounting.Refusal) Reason {
	switch {
	case r.Budget == nil:
		return ReasonDeviceFull
	case sharedOf(r.Budget) != nil:
		return ReasonSharedFull
	}
	return ReasonOverBudget
}

// refuse counts a refusal and says why; text says it where the figures do not, and aside what
// is free and not for this one.
func (a *Arbiter) refuse(now time.Time, l *lease, reason Reason, r *accounting.Refusal, text, aside string) Result {
	o := Result{Reason: reason, First: a.denied(l), Explain: text}
	a.countRefusal(l.session.job.person, reason)
	if r.Amount == accounting.Memory {
		o.Requested, o.Remaining, o.Limit = r.Requested, r.Remaining, r.Limit
	}
	if text == "" {
		a.explain(l, &o, r, aside)
	}
	j := l.session.job
	j.denial, j.denied = l.session.name()+": "+o.Explain, now
	switch reason {
	case ReasonTimeout, ReasonCancelled, ReasonDeadlock: // there is an event that says more
	default:
		a.deniedEvent(now, l.session, Event{Device: l.device.Index, Lease: l.id, Reason: reason,
			Requested: o.Requested, Remaining: o.Remaining, Limit: o.Limit}, o.Explain)
	}
	return o
}

// deniedEvent tells that a process was refused something.
func (a *Arbiter) deniedEvent(now time.Time, s *session, e Event, why string) {
	e.about(&s.process)
	e.in(s.job)
	e.Time, e.Kind, e.program, e.why = now, EventDenied, s.name(), why
	a.event(e)
}

// denied counts a refusal, and tells whether it is the first one of a process.
func (a *Arbiter) denied(l *lease) bool {
	l.denied++
	l.device.denied++
	l.session.job.tally.refused++
	a.stats.Denied++
	first := !l.session.refused
	l.session.refused = true
	return first
}
