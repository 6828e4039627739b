package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// Alloc decides on a request for bytes. Refused, nothing has moved (but a slot with nothing
// in it goes back where others wait or slots are narrower than jobs, and idle credit with it); larger than
// could ever fit, no word was even looked at (idle credit then counts as used in
// Remaining). Its cost is the depth of the tree of budgets, however many leases
// there are; only a request that is about to be refused looks at the others at that limit.
func (a *Arbiter) Alloc(now time.Time, r AllocRequest) Outcome {
	l := a.leases[r.Lease]
	if l == nil || !l.session.alive() {
		return Outcome{Reason: ReasonNoLease, Requested: r.Bytes, Explain: "the lease has ended"}
	}
	if l.lost {
		return a.refuse(now, l, ReasonDeviceLost, &accounting.Refusal{Device: l.device.Index, Requested: r.Bytes}, "", "")
	}
	a.sync(l)
	if r.Bytes == 0 {
		return Outcome{Granted: true}
	}
	a.touch(now, l)
	if most := l.budget(); r.Bytes > most { // no recall could ever help
		left := min(a.ledger.Room(l.sum), most)
		return a.refuse(now, l, ReasonTooLarge, &accounting.Refusal{
			Device: l.device.Index, Requested: r.Bytes, Remaining: left, Limit: most}, "", "")
	}
	if l.closed { // what was freed goes back before anything is given
		a.settle(now, l)
	}
	if a.calm(l) && a.ledger.Check(l.sum, r.Bytes) == nil {
		a.grant(l, r, 0)
		return Outcome{Granted: true}
	}
	defer a.turn(now)
	if l.contended() { // what it freed goes back before it gets more than others
		a.recallAll(l)
	}
	t := &ticket{kind: wantsBytes, job: l.session.job, session: l.session, lease: l, thread: r.Thread,
		bytes: r.Bytes, number: r.Request, noWait: r.NoWait, place: r.Place}
	a.ask(now, t)
	return *t.result().Alloc
}

// calm reports that nobody waits who could mind what a lease gets, and that it has a slot.
func (a *Arbiter) calm(l *lease) bool {
	h := l.slot
	return h != nil && (h.kept || h.key.session != nil || l.scope == "" || l.scope == ScopeJob) && (len(a.tickets) == 0 || len(l.device.queue) == 0 && len(l.session.job.tickets) == 0) &&
		!l.device.crowded && l.session.slots == 0
}

// touch notes that a lease asked for something.
func (a *Arbiter) touch(now time.Time, l *lease) {
	l.touched = now
	if j := l.session.job; len(j.tickets) > 0 {
		j.moved = now
	}
}

// grant hands out what was found to fit; own bytes of it came out of the lease's
// own word, and are granted to it already.
func (a *Arbiter) grant(l *lease, r AllocRequest, own accounting.Bytes) {
	before := l.sum.Granted() - own
	if refused := a.ledger.Reserve(l.sum, r.Bytes-own); refused != nil {
		panic("arbiter: " + refused.Error()) // it was checked, under one lock
	}
	a.words.Grant(l.id, before, r.Bytes, r.Request)
	a.look(l)
	if !l.contended() {
		a.surplus(l)
	}
	if j := l.session.job; len(j.tickets) > 0 || j.shared != nil { // a narrower budget may have no room for who waits now
		l.device.dirty = true
	}
	l.admitted++
	l.device.admitted++
	a.stats.Admitted++
}

// reason says whose limit refused.
func (j *job) reason(r *accounting.Refusal) Reason {
	switch {
	case r.Budget == nil:
		return ReasonDeviceFull
	case j.shared != nil && r.Budget == j.shared.budget:
		return ReasonSharedFull
	}
	return ReasonOverBudget
}

// refuse counts a refusal and says why; text says it where the figures do not, and aside what
// is free and not for this one.
func (a *Arbiter) refuse(now time.Time, l *lease, reason Reason, r *accounting.Refusal, text, aside string) Outcome {
	o := Outcome{
		Reason: reason, Requested: r.Requested, Remaining: r.Remaining, Limit: r.Limit,
		First: a.denied(l), Explain: text,
	}
	if text == "" {
		a.explain(l, &o, r, aside)
	}
	switch reason {
	case ReasonTimeout, ReasonCancelled, ReasonDeadlock: // there is an event that says more
	default:
		a.deniedEvent(now, l, o)
	}
	return o
}

// deniedEvent tells that a lease was refused something.
func (a *Arbiter) deniedEvent(now time.Time, l *lease, o Outcome) {
	p := &l.session.process
	a.event(Event{Time: now, Kind: EventDenied, Device: l.device.Index, PID: p.PID, UID: p.UID,
		Job: l.session.job.id, Lease: l.id, Reason: o.Reason,
		Requested: o.Requested, Remaining: o.Remaining, Limit: o.Limit, Text: o.Explain})
}

// denied counts a refusal, and tells whether it is the first one of a process.
func (a *Arbiter) denied(l *lease) bool {
	l.denied++
	l.device.denied++
	a.stats.Denied++
	first := !l.session.refused
	l.session.refused = true
	return first
}
