package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file decides on requests of leases: for memory, streams, contexts and holds. queue.go, judge.go and serve.go have what happens
// to a request that cannot be granted at once.

// Ask decides on a request of a lease, or counts the objects that it gives back.
//
// A refusal changes nothing, with one exception: if other requests wait, or slots belong to processes or threads, a slot under which the lease holds
// nothing goes back, and its idle credit too. A request that could never fit is refused before any credit word is read; idle credit
// then counts as used in Remaining.
//
// A request for bytes that fits costs as much as the tree of budgets is deep, however many leases there are. Only a request that a limit
// refuses makes Ask read the other leases below that limit.
//
// If slots are limited, the first object of a holder without a slot waits for a slot. The cost of a new context is reserved until the figures of
// the device show its memory.
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
	// Of an absent client's request the daemon knows the amount only rounded up, and not whether it is managed memory: its exact request is refused.
	if v := a.never(l, r.takes()); v.final && !r.Place.Absent {
		return l.counted(r.What, a.refuse(now, l, v.reason, v.refusal, "", ""))
	}
	if r.What == WantsBytes {
		if l.closed { // freed bytes go back before the lease is granted more
			a.settle(now, l)
		}
		for other := range l.device.aparts {
			a.takeApart(other)
		}
		if r.Managed {
			a.take(l, a.idle(l)) // idle credit counts at the device, where managed memory need not
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
	if r.What == WantsBytes && l.contended() { // other requests wait: what the client freed goes back first
		a.recallAll(l)
	}
	a.ask(now, t)
	return t.result()
}

// TakeBack takes back a grant of which the client never read the reply. Bytes are added to the credit word of the lease, as if the client had freed
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

// takes returns the amounts that a request adds to the sums, without the memory that its objects cost.
func (r *Request) takes() accounting.Amounts {
	if r.What == WantsStreams {
		return accounting.Amounts{accounting.Streams: accounting.Bytes(r.Count)}
	}
	if r.Managed {
		return accounting.Apart(r.Bytes)
	}
	return accounting.Whole(r.Bytes)
}

// counted returns a result of a ticket with Current and Max filled in.
func (t *ticket) counted(r Result) Result {
	if t.lease == nil {
		return r
	}
	return t.lease.counted(t.kind, r)
}

// counted returns a result with the number of streams or contexts of the lease filled in.
func (l *lease) counted(what What, o Result) Result {
	switch what {
	case WantsStreams:
		o.Current, o.Max = l.Streams(), l.StreamsMax()
	case WantsContexts, WantsHolds:
		o.Current = l.contexts
	}
	return o
}

// settled reports whether a lease has a slot that stays with it for as long as it holds something.
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

// grant adds memory to a lease's sums and shows it in the credit word, if it fits. False: it does not fit, and nothing has changed.
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

// reasonOf returns the reason for a refusal, by the owner of the limit that refused.
func reasonOf(r *accounting.Refusal) Reason {
	switch {
	case r.Budget == nil:
		return ReasonDeviceFull
	case sharedOf(r.Budget) != nil:
		return ReasonSharedFull
	}
	return ReasonOverBudget
}

// refuse counts a refusal of a lease's request and returns the result with its message. text is the message; "": it is made from the figures of
// r, and from aside, which says what is free but kept for other requests.
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
	case ReasonTimeout, ReasonCancelled, ReasonDeadlock: // the caller has made an event that says more
	default:
		a.deniedEvent(now, l.session, Event{Device: l.device.Index, Lease: l.id, Reason: reason,
			Requested: o.Requested, Remaining: o.Remaining, Limit: o.Limit}, o.Explain)
	}
	return o
}

// deniedEvent adds an event: a process was refused a request.
func (a *Arbiter) deniedEvent(now time.Time, s *session, e Event, why string) {
	e.about(&s.process)
	e.in(s.job)
	e.Time, e.Kind, e.program, e.why = now, EventDenied, s.name(), why
	a.event(e)
}

// denied counts a refusal, and reports whether it is the first of the process.
func (a *Arbiter) denied(l *lease) bool {
	l.denied++
	l.device.denied++
	l.session.job.tally.refused++
	a.stats.Denied++
	first := !l.session.refused
	l.session.refused = true
	return first
}
