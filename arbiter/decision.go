package arbiter

import (
	"fmt"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file records the decision on a request: it removes the request from the queue, counts its wait, and passes the decision to the
// daemon. serve.go and refuse.go call it.

// Decisions returns the decisions on waiting requests, and the notices to clients that still wait, since the last call. The oldest come
// first. Each ticket is decided exactly once.
func (a *Arbiter) Decisions() []Result {
	decisions := a.decisions
	a.decisions = nil
	return decisions
}

// reportStep is the smallest growth of a lease in bytes after which EventGranted is recorded again.
const reportStep = 64 << 20

// recordGrowth records EventGranted for a lease if its granted bytes have doubled since the last such event, and grown by reportStep. So a
// program causes only a few such events, however much it allocates.
func (a *Arbiter) recordGrowth(now time.Time, l *lease, asked accounting.Bytes) {
	has := l.Granted()
	if has < 2*l.reported || has < l.reported.Plus(reportStep) && l.reported > 0 {
		return
	}
	l.reported = has
	a.leaseEvent(now, l, Event{Kind: EventGranted, What: AsksMemory, Requested: asked, Bytes: has, Limit: a.info(l).Budget})
}

// noticeAfter is the shortest wait after which a client gets a notice that its request was served.
const noticeAfter = time.Second

// finish records the decision on a ticket. A ticket that waited leaves the queue, and its decision is added to those that Decisions
// returns. If the call that made the ticket still runs (a.asking), that call returns the decision instead.
func (a *Arbiter) finish(now time.Time, t *ticket, answer Result) {
	answer = t.counted(answer)
	answer.Ticket = t.id
	t.done, t.answer = true, answer
	if t.waitingSince.IsZero() {
		a.grantedAtOnce(now, t)
		return
	}
	a.dequeue(now, t)
	waited := now.Sub(t.place.Since)
	counts := t.job.counts()
	counts.waits++
	counts.waited += max(0, waited)
	t.job.untold = true
	if t.lease != nil {
		use := t.job.useOf(t.lease.device)
		use.waits++
		use.waited += max(0, waited)
	}
	a.countWait(t.job.user, &answer, waited)
	a.stats.LastWaitMs = uint64(max(0, waited/time.Millisecond))
	if answer.Granted {
		a.event(a.eventOf(now, t, EventServed, fmt.Sprintf(wording.Served, t.name(), a.requestText(t), wording.Span(waited))))
	}
	if a.asking != t {
		if answer.Granted && t.lease != nil && waited >= noticeAfter {
			a.decisions = append(a.decisions, Result{Ticket: t.id, Notice: &Notice{Waited: waited,
				Text: fmt.Sprintf(wording.Has, a.requestText(t), t.gpu(), wording.Span(waited))}})
		}
		a.decisions = append(a.decisions, answer)
	}
}

// grantedAtOnce records the event of a request that was granted without waiting.
func (a *Arbiter) grantedAtOnce(now time.Time, t *ticket) {
	switch {
	case !t.answer.Granted:
	case t.kind == WantsBytes:
		a.recordGrowth(now, t.lease, t.bytes)
	case t.kind == wantsJob:
		e := Event{Time: now, Kind: EventGranted, What: AsksJob, Device: -1, program: t.job.name()}
		e.about(t.process())
		e.in(t.job)
		if on := t.job.devices; len(on) == 1 {
			e.Device = on[0].Index
			e.Bytes = t.job.limits(on[0]).Min
		}
		a.event(e)
	}
}
