package arbiter

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file decides a new request, or adds it to the queue. ask.go calls it for requests of leases, and jobs.go and sessions.go for jobs
// and sessions that start.

// decideNew decides a new request, or adds it to the queue. Before it refuses a request or lets it wait, it drops unused slots and recalls idle
// credit of other leases, and evaluates the request again.
func (a *Arbiter) decideNew(now time.Time, t *ticket) {
	a.asking = t
	defer func() { a.asking = nil }()
	a.sort(now)
	a.assignPlace(now, t)
	if t.absent() {
		a.enqueue(now, t)
		return
	}
	if l := t.lease; l != nil && (width(l.scope) > 0 || l.session.slots > 0 || l.device.waiting > 0 || l.device.overfull()) {
		a.dropUnusedSlots(now, l)
	}
	v := a.evaluate(t)
	if (t.lease != nil && t.lacks(refusingLimit.ofBytes) || v.final) && !t.askedBefore && !t.looked { // count a request once
		a.countLimit(t)
	}
	if v.final {
		a.refuseNew(now, t, v.reason)
		return
	}
	if v.fits == nil || t.any && (v.fits != &t.candidates[0] || len(v.fits.device.permits[permit.Slot]) > 0) {
		a.dropUnusedFor(now, t)
		v = a.evaluate(t)
	}
	if !v.final && a.recallHelps(t) {
		v = a.evaluate(t)
	}
	if v.fits != nil {
		if v = a.admit(now, t, v); v.fits != nil {
			if slices.ContainsFunc(a.queue, t.sharesBudget) {
				a.changed()
			}
			return
		}
	}
	if v.final {
		a.refuseNew(now, t, v.reason)
		return
	}
	if !t.resubmitted && a.awaitsReading(now, t) {
		return
	}
	if why := a.mayWait(now, t); why != ReasonNone {
		a.refuseNew(now, t, why)
		return
	}
	if t.askedBefore && t.job.cancelled.After(now.Add(-askedAgain)) { // the cancellation included this request
		text := fmt.Sprintf(wording.NotServed, t.name(), a.requestText(t), t.gpu(), wording.Span(0), wording.Cancelled)
		a.refuseTicket(now, t, ReasonCancelled, text)
		return
	}
	if why := a.noPlace(t); why != "" && (t.aside || !t.resubmitted) {
		a.answerCrowded(now, t, why)
		return
	}
	if t.lease != nil { // while the request waits, its job keeps no slot without an object
		a.dropUnusedSlots(now, t.lease)
		a.evaluate(t)
	}
	a.startWaiting(now, t)
}

// refuseNew refuses a new request, unless a reading may show room for it (awaitsReading).
func (a *Arbiter) refuseNew(now time.Time, t *ticket, why Reason) {
	if !a.awaitsReading(now, t) {
		a.refuseTicket(now, t, why, "")
	}
}

// awaitsReading reports whether a new request lacks room only because of contexts that no reading has shown yet, and ends it with
// ReasonReading then. The request is not decided, whether it may wait or not: the daemon reads the device and asks again.
func (a *Arbiter) awaitsReading(now time.Time, t *ticket) bool {
	if t.read || !a.needsReading(t) {
		return false
	}
	if t.kind == WantsContexts {
		t.lease.undecided += t.count
	}
	a.returnIdle(t)
	a.finish(now, t, Result{Reason: ReasonReading, Requested: t.bytes})
	return true
}

// dropUnusedFor drops slots that no object needs any more, although no client sent a message about that. It does so on the devices on which
// a request lacks a slot, and on all devices that the request may choose from. A request that only lacks bytes keeps the slot of its own
// lease: the request may be refused, and without the slot the lease would lose its idle credit.
func (a *Arbiter) dropUnusedFor(now time.Time, t *ticket) {
	for i := range t.candidates {
		if t.any || t.candidates[i].lacks(func(f refusingLimit) bool { return f.noRoom && f.ofPermits() }) {
			a.dropUnusedOn(now, t.candidates[i].device)
		}
	}
	if t.lease != nil && t.lacks(refusingLimit.ofPermits) {
		a.dropUnusedSlots(now, t.lease)
	}
}

// askedAgain is the time after a cancellation within which the clients of requests outside the queue have asked again.
const askedAgain = 2 * time.Second

// assignPlace gives a new request a place in the queue. A resubmitted request keeps the place that it had.
func (a *Arbiter) assignPlace(now time.Time, t *ticket) {
	t.resubmitted = t.place.Arrival != 0
	t.priority = t.job.priority()
	if t.resubmitted {
		a.arrival = max(a.arrival, t.place.Arrival) // an earlier daemon may have assigned this number
	} else {
		a.arrival++
		t.place.Arrival, t.place.Since = a.arrival, now
	}
	if t.place.Absent {
		t.place.Absent, t.absentUntil = false, now.Add(AbsentFor)
	}
	if t.place.Since.IsZero() || t.place.Since.After(now) {
		t.place.Since = now
	}
	if t.lease != nil {
		t.candidates = []candidate{{device: t.lease.device}}
	}
	a.noteHeldSince(t)
}

// mayWait returns ReasonNone if a request that cannot be served may wait, else the reason to refuse it.
func (a *Arbiter) mayWait(now time.Time, t *ticket) Reason {
	slots := t.lease == nil || t.lacks(refusingLimit.ofPermits)
	switch {
	case !slots && !t.waitsForBytes():
		return t.shortOf()
	case t.kind == wantsReturn:
		return ReasonNone
	case t.noWait || t.job.request.NoWait:
		return ReasonBusy
	case slots:
		return ReasonNone
	case t.kind == WantsBytes && !t.resubmitted && t.lease.refusesFirst(t):
		return t.shortOf()
	}
	return ReasonNone
}

// startWaiting adds a request to the queue, records an event, and runs a cycle.
func (a *Arbiter) startWaiting(now time.Time, t *ticket) {
	a.enqueue(now, t)
	a.stats.Waited++
	a.event(a.eventOf(now, t, EventQueued, fmt.Sprintf(wording.Queued, t.name(), a.requestText(t), t.gpu(), a.viewQueue(now).positions[t], t.evaluation.reason.plain())))
	if !t.deadline.IsZero() && !t.deadline.After(now) { // its deadline passed before its client asked again
		a.cancel(now, t, ReasonTimeout)
		return
	}
	a.cycle(now)
}
