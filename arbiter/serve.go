package arbiter

import (
	"fmt"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file carries out verdicts (judge.go): it grants what was judged to fit, and refuses.

// admit serves a ticket that was judged to fit, and returns the verdict in the end. If clients of its own job have since allocated from the
// idle credit that was to make room for it, the ticket is judged again: it waits at another limit, or is refused if waiting cannot help.
func (a *Arbiter) admit(now time.Time, t *ticket, v verdict) verdict {
	if a.serve(now, t, v.spot) {
		return v
	}
	if v = a.judge(t); !v.waits() || reasonOf(t.short) == ReasonOverBudget {
		v = verdict{final: true, reason: reasonOf(t.short), refusal: t.short}
		t.why = v
	}
	return v
}

// serve grants a ticket that was judged to fit. False: it does not fit any more, because clients of its own job have allocated from the
// idle credit that was to make room for it.
func (a *Arbiter) serve(now time.Time, t *ticket, at *spot) bool {
	switch t.kind {
	case wantsJob:
		a.serveJob(now, t, at)
	case wantsSession:
		a.serveSession(now, t)
	default:
		return a.serveLease(now, t)
	}
	return true
}

// serveLease grants a request of a lease, with a slot if it needs one and has none.
func (a *Arbiter) serveLease(now time.Time, t *ticket) bool {
	l := t.lease
	if !a.fit(t) {
		return false
	}
	a.enter(now, l, t.thread)
	a.finish(now, t, Result{Granted: true, Receipt: a.apply(now, t)})
	a.reflag(l)
	return true
}

// apply adds what a ticket asks for to the sums of its lease, and returns the receipt by which the grant can be taken back.
func (a *Arbiter) apply(now time.Time, t *ticket) Receipt {
	l, thread := t.lease, a.makes(t.lease, t.thread)
	got := Receipt{Lease: l.id, What: t.kind, Count: t.count, Thread: t.thread}
	switch t.kind {
	case WantsBytes:
		l.makers.MakeBytes(thread)
		if !a.grant(l, t.memory(t.bytes)) {
			panic("arbiter: what fits was refused") // it was checked, under one lock
		}
		got.Bytes = t.bytes
		delete(l.bursts, t.thread)
	case WantsStreams:
		l.Reserve(accounting.Amounts{accounting.Streams: accounting.Bytes(t.count)})
		l.makers.Make(Maker{Thread: thread, Streams: t.count})
		a.recost(now, l, func() {})
	default:
		cost := t.bytes
		if t.kind == WantsContexts {
			cost = cost.Plus(l.offered())
			l.beyond.Refill(l.device.contextCost().Times(uint64(t.count)))
		}
		a.makeContexts(l, t.thread, t.count, t.kind)
		l.beyond.Made(now)
		a.recost(now, l, func() { l.beyond.Promise(cost) })
	}
	return got
}

// fit reports whether the budgets above a lease have room for its request. If its own process's or job's budget has too little, it takes back
// idle credit of other leases below that budget.
func (a *Arbiter) fit(t *ticket) bool {
	if !a.chained(t) {
		return true
	}
	if t.lease.Check(t.memory(t.bytes)) == nil {
		return true
	}
	a.countLimit(t)
	t.short = a.makeRoom(t)
	return t.short == nil
}

// helps takes back idle credit on devices on which only the lack of bytes refuses a ticket, if that makes enough room there. If one device
// is enough for the ticket, it stops at the first such device. Idle credit that would not make enough room stays with its leases. True: it
// took some back.
func (a *Arbiter) helps(t *ticket) (helped bool) {
	for i := range t.spots {
		s := &t.spots[i]
		switch {
		case len(s.full) == 0 && t.any:
			return false // the ticket fits on this device already
		case len(s.full) == 0:
		case !s.lacks(func(f full) bool { return !f.hard || f.ofPermits() }) && a.helpsAt(t, s.device):
			if helped = true; t.any {
				return true
			}
		case !t.any:
			return helped
		}
	}
	return helped
}

// helpsAt takes back idle credit on one device, if that makes room for a ticket there. False: it would not.
func (a *Arbiter) helpsAt(t *ticket, d *device) bool {
	switch {
	case t.lease == nil:
		least, budget := t.reserves(d)
		return a.recallFor(nil, func() *accounting.Refusal { return a.checkMin(budget, d, least) })
	case a.chained(t):
		t.short = a.makeRoom(t)
		return t.short == nil
	}
	return a.recallFor(nil, func() *accounting.Refusal { return a.payer(t).Check(accounting.Whole(t.bytes)) })
}

// serveJob opens a job that was judged to fit, with its reservations and permits.
func (a *Arbiter) serveJob(now time.Time, t *ticket, at *spot) {
	j := t.job
	var keeps []*device // only devices on which its slot was judged: a slots.max set since then gives it none
	for i := range t.spots {
		if s := &t.spots[i]; s.asks[permit.Slot] && (!t.any || s == at) && j.keeps(s.device) {
			keeps = append(keeps, s.device)
		}
	}
	if t.any {
		j.on = []*device{at.device}
	}
	j.pending = false
	a.begin(now, j, keeps)
	a.finish(now, t, Result{Granted: true, Job: new(a.jobInfo(j))})
}

// serveSession opens a session that was judged to fit with what it reserves.
func (a *Arbiter) serveSession(now time.Time, t *ticket) {
	s, j := t.session, t.job
	t.bytes = a.wantsBytes(t) // before the reservation is made, for the event
	if j.pending {
		j.opened = now
		a.stats.TotalJobs++
	}
	a.reserve(s)
	a.finish(now, t, Result{Granted: true})
}

// reserve makes the reservation of a session that was judged to fit. If its job has none yet, it first makes that of the job.
func (a *Arbiter) reserve(s *session) {
	s.pending = false
	if s.job.pending {
		s.job.pending = false
		a.reserveJob(s.job)
	}
	_, _ = a.setLimits(a.sessionChanges(nil, s), false)
}

// reserveJob makes the reservations of a job that was judged to fit.
func (a *Arbiter) reserveJob(j *job) {
	_, _ = a.setLimits(a.jobChanges(nil, j), false)
	a.changed() // waiting requests may have less room now
}

// begin makes a job's reservations, and makes the job a holder of the devices in keeps until it ends.
func (a *Arbiter) begin(now time.Time, j *job, keeps []*device) {
	a.reserveJob(j)
	j.opened = now
	a.stats.TotalJobs++
	for _, d := range keeps {
		a.grantJobPermits(now, j, d)
	}
}

// grantJobPermits makes a job a holder of a device until it ends.
func (a *Arbiter) grantJobPermits(now time.Time, j *job, d *device) {
	h := a.grantPermits(now, d, owner{Job: j}, j.asks())
	h.kept, h.spare = true, j.keepsSpare(d)
}

// toldWait is the shortest wait after which a program is told that its request was served.
const toldWait = time.Second

// finish records the decision on a ticket. A ticket that waited leaves the queue, and its decision is appended to those that Decisions
// returns. If the call that made the ticket still runs (a.asking), that call returns the decision instead.
func (a *Arbiter) finish(now time.Time, t *ticket, answer Result) {
	answer = t.counted(answer)
	answer.Ticket = t.id
	t.done, t.answer = true, answer
	if t.parked.IsZero() {
		a.grantedAtOnce(now, t)
		return
	}
	a.unpark(now, t)
	waited := now.Sub(t.place.Since)
	t.job.tally.waits++
	t.job.tally.waited += max(0, waited)
	a.countWait(t.job.person, &answer, waited)
	a.stats.LastWaitMs = uint64(max(0, waited/time.Millisecond))
	if answer.Granted {
		a.event(a.eventOf(now, t, EventServed, fmt.Sprintf(wording.Served, t.name(), a.requestText(t), wording.Span(waited))))
	}
	if a.asking != t {
		if answer.Granted && t.lease != nil && waited >= toldWait {
			a.decisions = append(a.decisions, Result{Ticket: t.id, Notice: &Notice{Waited: waited,
				Text: fmt.Sprintf(wording.Has, a.requestText(t), t.gpu(), wording.Span(waited))}})
		}
		a.decisions = append(a.decisions, answer)
	}
}

// grantedAtOnce makes the event of a request that was granted without waiting.
func (a *Arbiter) grantedAtOnce(now time.Time, t *ticket) {
	switch {
	case !t.answer.Granted:
	case t.kind == WantsBytes:
		a.grew(now, t.lease, t.bytes)
	case t.kind == wantsJob:
		e := Event{Time: now, Kind: EventGranted, What: AsksJob, Device: -1, program: t.job.name()}
		e.about(t.process())
		e.in(t.job)
		if on := t.job.on; len(on) == 1 {
			e.Device = on[0].Index
			e.Bytes = t.job.limits(on[0]).Min
		}
		a.event(e)
	}
}

// refuseTicket refuses a ticket. text is the message; "": it is made from the figures at the limit that refuses the ticket.
func (a *Arbiter) refuseTicket(now time.Time, t *ticket, why Reason, text string) {
	r, aside := a.refusal(t, why), ""
	a.leaveIdle(t)
	switch {
	case text != "":
	case why == ReasonThreads:
		text = a.explainThreads(t.lease, t.thread)
	default:
		if aside = a.setAside(now, t, why, r); aside == "" && a.isFurther(t) {
			aside = wording.FurtherContext
		}
	}
	var answer Result
	if t.lease != nil {
		answer = a.refuse(now, t.lease, why, r, text, aside)
	} else {
		t.job.tally.refused++
		if a.asking != t { // else the call that asked returns the refusal and counts it
			a.countRefusal(t.job.person, why)
		}
		answer = *a.refuseStart(t, why, r, text)
	}
	a.finish(now, t, answer)
	if t.lease == nil {
		a.abandon(now, t)
	}
}

// leaveIdle returns to a lease the idle credit that judge took for a request that is now refused without having waited.
func (a *Arbiter) leaveIdle(t *ticket) {
	if l := t.lease; t.taken > 0 && t.parked.IsZero() && !l.closed && l.Away() == 0 {
		l.give(t.taken)
	}
	t.taken = 0
}

// refuseStart returns the refusal of a job or a session that does not begin.
func (a *Arbiter) refuseStart(t *ticket, why Reason, r *accounting.Refusal, text string) *Result {
	switch {
	case text != "":
	case t.lacks(full.ofPermits):
		text = a.explainSlots(t)
	default:
		return a.minRefused(r, why)
	}
	return refusal(why, r, text)
}

// abandon removes the job or the session that waited for its start and was refused.
func (a *Arbiter) abandon(now time.Time, t *ticket) {
	j := t.job
	if s := t.session; s != nil {
		a.dropSession(now, s)
	}
	if a.jobs[j.id] == j && len(j.sessions) == 0 && t.session == nil {
		a.dropJob(j)
	}
}
