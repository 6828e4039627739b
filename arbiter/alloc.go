package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// Alloc decides on a request for bytes. Refused, nothing has moved; larger than
// could ever fit, no word was even looked at (idle credit then counts as used in
// Remaining). Its cost is the depth of the tree of budgets, however many leases
// there are; only a request that is about to be refused looks at the others at that limit.
func (a *Arbiter) Alloc(now time.Time, r AllocRequest) Outcome {
	l := a.leases[r.Lease]
	if l == nil || !l.session.alive() {
		return Outcome{Reason: ReasonNoLease, Requested: r.Bytes, Explain: "the lease has ended"}
	}
	if l.lost {
		return a.refuse(now, l, ReasonDeviceLost, &accounting.Refusal{Device: l.device.Index, Requested: r.Bytes})
	}
	a.sync(l)
	if r.Bytes == 0 {
		return Outcome{Granted: true}
	}
	if most := l.budget(); r.Bytes > most { // no recall could ever help
		left := min(a.ledger.Room(l.sum), most)
		return a.refuse(now, l, ReasonTooLarge, &accounting.Refusal{
			Device: l.device.Index, Requested: r.Bytes, Remaining: left, Limit: most})
	}
	if l.closed { // what was freed goes back before anything is given
		a.settle(now, l)
	}
	var own accounting.Bytes
	if refused := a.ledger.Check(l.sum, r.Bytes); refused != nil {
		if own, refused = a.makeRoom(l, r.Bytes); refused != nil {
			return a.refuse(now, l, l.session.job.reason(refused), refused)
		}
	}
	a.grant(l, r, own)
	return Outcome{Granted: true}
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
	a.surplus(l)
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

// refuse counts a refusal and says why.
func (a *Arbiter) refuse(now time.Time, l *lease, reason Reason, r *accounting.Refusal) Outcome {
	o := Outcome{
		Reason: reason, Requested: r.Requested, Remaining: r.Remaining, Limit: r.Limit,
		First: a.denied(l),
	}
	a.explain(l, &o, r)
	p := &l.session.process
	a.event(Event{Time: now, Kind: EventDenied, Device: l.device.Index, PID: p.PID, UID: p.UID,
		Job: l.session.job.id, Lease: l.id, Reason: reason,
		Requested: o.Requested, Remaining: o.Remaining, Limit: o.Limit, Text: o.Explain})
	return o
}

// denied counts a refusal, and tells whether it is the first one of a process below `gpuarb run`.
func (a *Arbiter) denied(l *lease) bool {
	l.denied++
	l.device.denied++
	a.stats.Denied++
	first := !l.session.refused && l.session.job.run
	l.session.refused = true
	return first
}

// Stream takes or gives back streams. With Granted false nothing was taken. Giving
// back more than there are gives back all.
func (a *Arbiter) Stream(now time.Time, r StreamRequest) StreamOutcome {
	l := a.leases[r.Lease]
	if l == nil || !l.session.alive() {
		return StreamOutcome{Reason: ReasonNoLease, Explain: "the lease has ended"}
	}
	o := StreamOutcome{Granted: true}
	switch count := r.Count; {
	case count < 0:
		a.ledger.GiveStreams(l.sum, -max(count, -1<<31))
	case count > 0 && l.lost:
		o = StreamOutcome{Reason: ReasonDeviceLost, First: a.denied(l), Explain: lostRefusal(l.device).Explain}
	case !a.ledger.TakeStreams(l.sum, count):
		o = StreamOutcome{Reason: ReasonStreams, First: a.denied(l), Explain: explainStreams(l, count)}
	}
	o.Current, o.Max = l.sum.Streams(), l.sum.StreamsMax()
	if !o.Granted {
		p := &l.session.process
		a.event(Event{Time: now, Kind: EventDenied, Device: l.device.Index, PID: p.PID, UID: p.UID,
			Job: l.session.job.id, Lease: l.id, Reason: o.Reason, Text: o.Explain})
	}
	return o
}

// Context counts contexts made or destroyed.
func (a *Arbiter) Context(_ time.Time, r ContextRequest) ContextOutcome {
	l := a.leases[r.Lease]
	if l == nil || !l.session.alive() {
		return ContextOutcome{Reason: ReasonNoLease, Explain: "the lease has ended"}
	}
	if !r.Hold {
		l.contexts = min(max(l.contexts+min(max(r.Count, -maxContexts), maxContexts), 0), maxContexts)
	}
	return ContextOutcome{Granted: true, Current: l.contexts}
}

// maxContexts is more than any program makes.
const maxContexts = 1 << 30

// Query answers a program's memory query. It opens no lease. Total − Used is
// what the budgets above the session have left, idle credit in them included.
// ErrNoSession, ErrNoDevice; a *Refusal when the device is lost.
func (a *Arbiter) Query(_ time.Time, id SessionID, device int) (Room, error) {
	s, d := a.sessions[id], a.device(device)
	if s == nil || !s.alive() {
		return Room{}, noSession(id)
	}
	if d == nil {
		return Room{}, noDevice(device)
	}
	if d.lost {
		return Room{}, lostRefusal(d)
	}
	total, left := accounting.Max, accounting.Max
	for b := s.budget; b != nil; b = b.Parent() {
		if sums := b.Account(device); sums.Limit != accounting.Max {
			total = min(total, sums.Limit)
			left = min(left, sums.Limit.Less(sums.Held-min(a.idleBelow(b, d), sums.Held)))
		}
	}
	idle := a.idleBelow(s.job.budget, d)
	if total > d.Total {
		total = d.Total
		if left == accounting.Max {
			left = total.Less(s.job.budget.Account(device).Held.Less(idle))
		}
	}
	r := Room{Total: total, Used: total.Less(left)}
	r.Room = min(a.ledger.BudgetRoom(s.budget, device).Plus(idle), d.grantable())
	if r.Room < total-r.Used { // tight: only then look at everybody
		for l := range a.leasesOn(d) {
			if l.session.job != s.job {
				r.Room = r.Room.Plus(a.idle(l))
			}
		}
		r.Room = min(r.Room, d.grantable())
	}
	return r, nil
}

// idleBelow is the idle credit of all leases below a budget on a device.
func (a *Arbiter) idleBelow(b *accounting.Budget, d *device) accounting.Bytes {
	var idle accounting.Bytes
	for l := range owners(b.Leases(d.Index)) {
		idle = idle.Plus(a.idle(l))
	}
	return idle
}
