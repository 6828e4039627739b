package arbiter

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file refuses requests: for lack of room, because of a deadline, on cancellation, or because the queue is full. A job or a session
// that waited to start is removed with its request. cycle.go, decide.go, deadlock.go and cancel.go call it.

// denied counts a refusal, and reports whether it is the first refusal of the process.
func (a *Arbiter) denied(l *lease) bool {
	l.denied++
	l.device.denied++
	l.session.job.untold = true
	a.stats.Denied++
	first := !l.session.refused
	l.session.refused = true
	return first
}

// refuse counts the refusal of a lease's request, and returns the result with its message. text is the message. If text is "", the message
// is made from the figures of r and from aside, which says what is free but kept for other requests.
func (a *Arbiter) refuse(now time.Time, l *lease, reason Reason, r *accounting.Refusal, text, aside string) Result {
	o := Result{Reason: reason, First: a.denied(l), Explain: text}
	a.countRefusal(l.session.job.user, reason)
	if r.Amount == accounting.Memory {
		o.Requested, o.Remaining, o.Limit = r.Requested, r.Remaining, r.Limit
	}
	if text == "" {
		a.explain(l, &o, r, aside)
	}
	l.session.job.counts().lastRefused = a.lastRefused(l, &o, r)
	l.session.job.denial = &denial{l.session.name() + ": " + o.Explain, now}
	switch reason {
	case ReasonTimeout, ReasonCancelled, ReasonDeadlock: // the caller has recorded an event that says more
	default:
		a.deniedEvent(now, l.session, Event{Device: l.device.Index, Lease: l.id, Reason: reason,
			Requested: o.Requested, Remaining: o.Remaining, Limit: o.Limit}, o.Explain)
	}
	return o
}

// tallyRefusal counts a refusal in the account of the lease's job.
func (l *lease) tallyRefusal(reason Reason, r *accounting.Refusal) {
	j, counts := l.session.job, l.session.job.counts()
	counts.refused++
	counts.countReason(reason)
	j.useOf(l.device).refused++
	if r.Amount == accounting.Memory {
		counts.lacked = max(counts.lacked, r.Requested)
	}
}

// startRefused counts and records the refusal of a job or a process that wanted to start.
func (a *Arbiter) startRefused(now time.Time, s *session, err error) {
	if r := (*Result)(nil); errors.As(err, &r) && r.Reason != ReasonCrowded {
		a.countRefusal(a.userOf(s.job.request.Process.UID, s.job.request.Process.User), r.Reason)
		a.deniedEvent(now, s, Event{Device: -1, Reason: r.Reason, Requested: r.Requested, Remaining: r.Remaining, Limit: r.Limit}, r.Explain)
	}
}

// returnIdle returns to a lease the idle credit that evaluate recalled for a request that is now refused without having waited.
func (a *Arbiter) returnIdle(t *ticket) {
	if l := t.lease; t.recalled > 0 && t.waitingSince.IsZero() && !l.closed && l.Away() == 0 {
		l.addCredit(t.recalled)
	}
	t.recalled = 0
}

// refuseStart returns the refusal of a job or a session that wanted to start.
func (a *Arbiter) refuseStart(now time.Time, t *ticket, why Reason, r *accounting.Refusal, text string) *Result {
	switch {
	case text != "":
		return refusal(why, r, text)
	case t.lacks(refusingLimit.ofPermits):
		text = a.explainSlots(t)
	default:
		text = a.explainMin(t.job, t.namesWithin(), r, why)
	}
	if !t.any && len(t.candidates) == 1 && why != ReasonOverBudget {
		if other := a.roomElsewhere(now, t.job, t.candidates[0].device, a.wantsBytes(t)); other != "" {
			text += "; " + other
		}
	}
	return refusal(why, r, text)
}

// refuseDriverFull refuses a request of a lease for which the driver had no memory, although it was granted twice.
func (a *Arbiter) refuseDriverFull(now time.Time, l *lease, r Request) Result {
	d, what, bytes := l.device, r.Bytes.Human(), r.Bytes
	if r.What != WantsBytes {
		what, bytes = wording.Context, l.newContexts(r.Count, l.device.contextRoom())
	}
	full := &accounting.Refusal{Amount: accounting.Memory, Device: d.Index, Requested: bytes, Remaining: d.Total.Less(d.shown), Limit: d.grantable()}
	l.tallyRefusal(ReasonDeviceFull, full)
	o := a.refuse(now, l, ReasonDeviceFull, full, a.driverFull(l, what), "")
	l.session.job.counts().lastRefused = fmt.Sprintf(wording.LastDriver, what, d)
	return o
}

// abandon removes the job or the session whose start was refused.
func (a *Arbiter) abandon(now time.Time, t *ticket) {
	j := t.job
	if s := t.session; s != nil {
		a.dropSession(now, s)
	}
	if a.jobs[j.id] == j && len(j.sessions) == 0 && t.session == nil {
		a.dropJob(now, j)
	}
}

// refuseTicket refuses a ticket. text is the message; if it is "", the message is made from the figures of the limit that refuses the
// ticket.
func (a *Arbiter) refuseTicket(now time.Time, t *ticket, why Reason, text string) {
	r, aside := a.refusal(t, why), ""
	a.returnIdle(t)
	switch {
	case text != "":
	case why == ReasonThreads:
		text = a.explainThreads(t.lease, t.thread)
	case t.driverFull && why == ReasonDeviceFull && t.bytes <= a.ledger.Available(nil, t.lease.device.Index):
		text = a.driverFull(t.lease, a.requestText(t))
	default:
		if aside = a.explainBlocked(now, t, why, r); aside == "" && a.isFurther(t) {
			aside = wording.FurtherContext
		}
		if t.first {
			aside = strings.TrimPrefix(aside+", "+wording.RefusedFirst, ", ")
		}
	}
	var answer Result
	if t.lease != nil {
		answer = a.refuse(now, t.lease, why, r, text, aside)
		if !t.first { // else the program drops caches and goes on: it lacked nothing
			t.lease.tallyRefusal(why, r)
		}
	} else {
		t.job.counts().refused++
		t.job.counts().countReason(why)
		if a.asking != t { // else the call that made the request counts the refusal
			a.countRefusal(t.job.user, why)
		}
		answer = *a.refuseStart(now, t, why, r, text)
		t.job.counts().lastRefused = firstPart(answer.Explain)
	}
	a.finish(now, t, answer)
	if t.opens() {
		a.recordEnd(now, t.job, answer.Explain)
		a.abandon(now, t)
	}
}

// cancel refuses a waiting ticket because of its deadline or on cancellation, and records an event. The caller runs the cycle.
func (a *Arbiter) cancel(now time.Time, t *ticket, why Reason) {
	a.changed()
	kind, text := EventCancelled, wording.Cancelled
	if why == ReasonTimeout {
		kind, text = EventTimeout, wording.TimedOut
		if held := a.heldAt(now, t.narrowestLimit(), t); held != "" {
			text += "; " + held
		}
		if !t.any {
			if other := a.roomElsewhere(now, t.job, t.narrowestLimit().device, a.wantsBytes(t)); other != "" {
				text += "; " + other
			}
		}
		a.stats.Timeouts++
	} else {
		a.stats.Cancelled++
	}
	text = fmt.Sprintf(wording.NotServed, t.name(), a.requestText(t), t.gpu(), wording.Span(now.Sub(t.place.Since)), text)
	a.event(a.eventOf(now, t, kind, text))
	a.refuseTicket(now, t, why, text)
}

// cancelOf cancels the tickets of a job for which meant returns true, and returns their number.
func (a *Arbiter) cancelOf(now time.Time, j *job, meant func(*ticket) bool) (n int) {
	for _, t := range slices.Clone(j.tickets) {
		if meant(t) {
			a.cancel(now, t, ReasonCancelled)
			n++
		}
	}
	return n
}

// cancelStart cancels the request with which a job waits to start. It returns false if the job does not wait to start.
func (a *Arbiter) cancelStart(now time.Time, j *job) bool {
	return a.cancelOf(now, j, func(t *ticket) bool { return t.kind == wantsJob }) > 0
}

// dropAbsent removes the ticket of an absent client, and the job or session that the ticket was to open.
func (a *Arbiter) dropAbsent(now time.Time, t *ticket) {
	a.dequeue(now, t)
	t.done = true
	if t.opens() {
		a.abandon(now, t)
	}
	a.changed()
}

// refuseLate refuses the requests whose deadline has passed, and drops those whose absent clients have not asked again in time.
func (a *Arbiter) refuseLate(now time.Time) {
	late := func(t *ticket) bool { return !t.expiry().IsZero() && !now.Before(t.expiry()) }
	if !slices.ContainsFunc(a.queue, late) {
		return
	}
	all := slices.Clone(a.queue)
	slices.SortFunc(all, byArrival)
	for _, t := range all {
		switch {
		case t.done || !late(t):
		case t.absent():
			a.dropAbsent(now, t)
			a.decisions = append(a.decisions, Result{Ticket: t.id, Reason: ReasonCancelled})
		default:
			a.cancel(now, t, ReasonTimeout)
		}
	}
}

// answerCrowded answers a request that may wait but finds no place in the queue. The answer is not a refusal and raises no counter of
// refusals: the client asks again until its deadline.
func (a *Arbiter) answerCrowded(now time.Time, t *ticket, why string) {
	a.returnIdle(t)
	a.finish(now, t, Result{Reason: ReasonCrowded, Requested: t.bytes, Explain: why, Patience: t.job.timeout()})
	if t.opens() {
		a.abandon(now, t)
	}
}
