package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// verdict is what the limits say of a ticket at a moment. With neither final nor spot
// set, it has to wait.
type verdict struct {
	final   bool  // refused, whatever others do
	spot    *spot // it can be served, here or (where it needs several) everywhere
	reason  Reason
	refusal *accounting.Refusal // the figures at the limit that refuses
}

// waits tells that there is something to wait for: others are in the way.
func (v verdict) waits() bool { return !v.final && v.spot == nil && v.reason != ReasonNone }

// judge tells whether a ticket can be served now. Nothing moves.
func (a *Arbiter) judge(now time.Time, t *ticket) verdict {
	for i := range t.spots {
		t.spots[i].at, t.spots[i].hard = 0, 0
	}
	if t.lease != nil {
		t.why = a.judgeLease(now, t)
	} else {
		t.why = a.judgeStart(now, t)
	}
	return t.why
}

// need is what a request still takes of the sums.
func (t *ticket) need() accounting.Bytes { return t.bytes - t.own }

// chained reports whether a request is charged to the budgets above its lease; else
// to the device alone.
func (a *Arbiter) chained(t *ticket) bool {
	return t.kind != wantsContexts || a.policy.ChargeOverhead
}

// judgeLease judges a request of a lease.
func (a *Arbiter) judgeLease(now time.Time, t *ticket) verdict {
	l, s := t.lease, t.alone()
	if t.kind == wantsContexts && !t.hold {
		t.bytes = a.contextsNeed(l, t.count)
	}
	d, need := l.device, t.need()
	if l.lost {
		return verdict{final: true, reason: ReasonDeviceLost, refusal: t.figures(0, 0)}
	}
	shared, device, final := a.tight(t)
	if final.final {
		return final
	}
	a.judgeSlot(now, t, s, l.session.slots, !a.inside(l, t.thread), false, false)
	if need > 0 && (!a.chained(t) || l.sum.Growth(need, nil) > 0) {
		s.judge(atBytes, device, a.behindBytes(now, d, t))
	}
	if sh := t.job.shared; sh != nil && need > 0 && a.chained(t) && l.sum.Growth(need, sh.budget) > 0 {
		s.judge(atShared, shared, a.behind(now, sh.line(d), t))
	}
	if s.at == 0 {
		return verdict{spot: s}
	}
	return verdict{reason: s.reason()}
}

// reason is the narrowest limit that refuses on a device.
func (s *spot) reason() Reason {
	switch {
	case s.at&atShared != 0:
		return ReasonSharedFull
	case s.at&(atSlots|atWish) != 0:
		return ReasonSlots
	}
	return ReasonDeviceFull
}

// judge notes that a limit refuses: by itself, or because others come first.
func (s *spot) judge(at limits, hard, behind bool) {
	if hard {
		s.hard |= at
	}
	if hard || behind {
		s.at |= at
	}
}

// figures are those of a refusal that no sum explains.
func (t *ticket) figures(left, limit accounting.Bytes) *accounting.Refusal {
	return &accounting.Refusal{Device: t.spots[0].device.Index, Requested: t.bytes, Remaining: left, Limit: limit}
}

// behindBytes tells whether bytes of a device are set aside for somebody who comes first.
func (a *Arbiter) behindBytes(now time.Time, d *device, t *ticket) bool {
	return a.behind(now, &d.bytes, t) || t.fresh && a.behind(now, &d.fresh, t)
}

// judgeSlot judges whether there is a slot for who needs one.
func (a *Arbiter) judgeSlot(now time.Time, t *ticket, s *spot, wish int, needs, claim, exclusive bool) {
	s.enters, s.claims, s.alone = needs, claim, exclusive
	if !needs {
		return
	}
	d := s.device
	full, own := d.full(t.job, wish, claim, exclusive)
	if own {
		s.judge(atWish, true, false)
		return
	}
	behind := a.behind(now, &d.slots, t) || (claim || exclusive) && a.behind(now, &d.claimers, t) ||
		exclusive && a.behind(now, &d.entrants, t)
	s.judge(atSlots, full, behind)
}

// entry is the line of who waits to enter a device. Where slots are not capped, those
// who come later and neither claim it nor want it alone have nothing to wait for.
func (s *spot) entry() *line {
	switch d := s.device; {
	case s.alone || d.slotsMax() > 0:
		return &d.slots
	case s.claims:
		return &d.claimers
	}
	return &s.device.entrants
}

// tight asks the ledger about a lease's request: whether a shared budget and the device
// have no room for it, and a refusal that is final: by the lease's own budgets, or because
// what is in the way is its own.
func (a *Arbiter) tight(t *ticket) (shared, device bool, final verdict) {
	l, need := t.lease, t.need()
	if need == 0 {
		return false, false, verdict{}
	}
	if most := l.budget(); a.chained(t) && t.bytes > most {
		return false, false, verdict{final: true, reason: ReasonTooLarge, refusal: t.figures(min(a.ledger.Room(l.sum), most), most)}
	}
	if a.chained(t) {
		for b := range a.ledger.Tight(l.sum, need) {
			switch sh := t.job.shared; {
			case b == nil:
				device = true
			case sh != nil && b == sh.budget:
				shared = true
			default:
				if r := a.beyondOwn(t); r != nil {
					return false, false, verdict{final: true, reason: ReasonOverBudget, refusal: r}
				}
			}
		}
	} else {
		sums := a.ledger.Device(l.device.Index)
		device = need > sums.Limit.Less(sums.Committed)
	}
	switch {
	case shared && a.ownPart(t, t.job).Plus(need) > t.job.shared.limits(l.device).Max:
		final = verdict{final: true, reason: ReasonSharedFull}
	case device && a.ownPart(t, nil).Plus(need) > l.device.grantable():
		final = verdict{final: true, reason: ReasonDeviceFull}
	}
	return shared, device, final
}

// refusal returns the figures at the limit for which a ticket is refused.
func (a *Arbiter) refusal(t *ticket, why Reason) *accounting.Refusal {
	if t.why.refusal != nil {
		return t.why.refusal
	}
	if len(t.spots) == 0 {
		return &accounting.Refusal{}
	}
	if t.lease == nil {
		return a.refusalOfStart(t)
	}
	sums := a.ledger.Device(t.lease.device.Index)
	if a.chained(t) && t.bytes > 0 {
		for r := range a.ledger.Refusals(t.lease.sum, t.bytes) {
			if got := t.job.reason(r); got == why || got == t.why.reason {
				return r
			}
		}
		return t.figures(0, sums.Limit) // it is only not its turn
	}
	left := sums.Limit.Less(sums.Committed)
	r := t.figures(min(left, t.bytes.Less(1)), sums.Limit)
	r.Short = t.bytes.Less(left)
	return r
}

// refusalOfStart is the same for what a job or a process takes before it begins.
func (a *Arbiter) refusalOfStart(t *ticket) *accounting.Refusal {
	var plain *accounting.Refusal
	for i := range t.spots {
		d := t.spots[i].device
		least, budget := t.reserves(d)
		if r := a.ledger.CheckMin(budget, d.Index, least, a.headroomFor(budget, d, least)); r != nil && least > 0 {
			return r
		}
		if plain == nil {
			plain = &accounting.Refusal{Device: d.Index, Requested: least, Limit: d.grantable()}
		}
	}
	return plain
}

// beyondOwn tells whether a lease's own budget refuses a request even after all idle
// credit was called back: nil, or the refusal.
func (a *Arbiter) beyondOwn(t *ticket) *accounting.Refusal {
	if _, r := a.shortage(t.lease, t.need()); r != nil && t.job.reason(r) == ReasonOverBudget {
		return r
	}
	return nil
}

// ownPart is what a process (or all of a job, where one is given) holds itself on its
// device and has in use. Nobody waits for that.
func (a *Arbiter) ownPart(t *ticket, j *job) accounting.Bytes {
	part := func(l *lease) accounting.Bytes {
		return l.sum.Granted().Less(a.idle(l)).Plus(max(l.sum.Charged(), l.cost()))
	}
	if j == nil {
		return part(t.lease)
	}
	var all accounting.Bytes
	for _, s := range j.sessions {
		for _, l := range s.leases {
			if l.device == t.lease.device && s.alive() {
				all = all.Plus(l.sum.Granted().Less(a.idle(l)).Plus(l.sum.Charged()))
			}
		}
	}
	return all
}

// judgeStart judges what a job, or a process, takes before it begins: what it reserves,
// and for a job its slots, claim and the sole use of its devices. Of devices to choose
// from, one that nobody is on comes before one that merely has room.
func (a *Arbiter) judgeStart(now time.Time, t *ticket) verdict {
	var worst, shared verdict // shared: among devices to choose from, the first that has room beside others
	waits := false            // there is a device that may come to do
	for i := range t.spots {
		s := &t.spots[i]
		v := verdict{final: true, reason: ReasonDeviceLost}
		if !s.device.lost {
			v = a.judgeSpot(now, t, s)
		}
		switch {
		case v.final && !t.any, v.spot != nil && t.any && len(s.device.holders) == 0:
			return v
		case v.spot != nil && t.any && shared.spot == nil:
			shared = v
		case v.final: // this one never does; it holds nobody up
			s.at, s.hard = atWish, atWish
		case v.spot == nil:
			waits = true
		}
		if i == 0 || worst.final && !v.final || worst.spot != nil && v.spot == nil {
			worst = v
		}
	}
	switch {
	case shared.spot != nil:
		return shared
	case !waits && !t.any:
		return verdict{spot: &spot{}}
	}
	return worst
}

// judgeSpot judges what a job or a process takes on one device before it begins.
func (a *Arbiter) judgeSpot(now time.Time, t *ticket, s *spot) verdict {
	j, d := t.job, s.device
	least, budget := t.reserves(d)
	if v := a.neverStarts(t, d, least, budget); v.final {
		return v
	}
	inShared, onDevice := a.growths(j, budget, d, least)
	r := &j.request
	enters := t.kind == wantsJob && (r.NoWait || j.keeps(d))
	a.judgeSlot(now, t, s, 0, enters, r.Claim || r.Any, r.Exclusive)
	if onDevice = onDevice.Plus(a.headroomFor(budget, d, least)); onDevice > 0 {
		sums := a.ledger.Device(d.Index)
		s.judge(atBytes, onDevice > sums.Limit.Less(sums.Committed), a.behindBytes(now, d, t))
	}
	if inShared > 0 {
		limit := j.shared.limits(d).Max
		s.judge(atShared, inShared > limit.Less(j.shared.budget.Load(d.Index)), a.behind(now, j.shared.line(d), t))
	}
	if s.at == 0 {
		return verdict{spot: s}
	}
	return verdict{reason: s.reason()}
}

// neverStarts tells whether a reservation will never have room on a device, or none below
// the budgets of its own job.
func (a *Arbiter) neverStarts(t *ticket, d *device, least accounting.Bytes, b *accounting.Budget) verdict {
	if least == 0 {
		return verdict{}
	}
	final := func(why Reason) verdict {
		r := a.ledger.CheckMin(b, d.Index, least, a.headroomFor(b, d, least))
		if r == nil {
			r = &accounting.Refusal{Device: d.Index, Requested: least, Limit: d.grantable()}
		}
		return verdict{final: true, reason: why, refusal: r}
	}
	if most := d.mostMin(); least > most {
		return verdict{final: true, reason: ReasonTooLarge,
			refusal: &accounting.Refusal{Device: d.Index, Requested: least, Remaining: most, Limit: d.grantable()}}
	}
	if sh := t.job.shared; sh != nil && least > sh.limits(d).Max {
		return final(ReasonSharedFull)
	}
	if b != t.job.budget { // a process's: what its job has promised others may be in its way
		if r := a.ledger.CheckMin(b, d.Index, least, 0); r != nil && t.job.reason(r) == ReasonOverBudget {
			return final(ReasonOverBudget)
		}
	}
	return verdict{}
}

// reserves returns what a job or a process that begins reserves on a device, and of
// which budget.
func (t *ticket) reserves(d *device) (accounting.Bytes, *accounting.Budget) {
	j, s := t.job, t.session
	if t.kind == wantsJob || j.pending {
		l := j.wants(d)
		if s == nil && j.request.NoWait && l.Min == 0 { // what its processes are to have, it does not start without
			l = (&session{job: j}).wants(d)
		}
		if min(l.Min, l.Max) > 0 || s == nil {
			return min(l.Min, l.Max), j.budget
		}
	}
	l := s.wants(d)
	return min(l.Min, l.Max), s.budget
}

// growths returns by how much the loads of a job's shared budget and of the device grow
// with a reservation, and with what the rule reserves for the shared budget itself.
func (a *Arbiter) growths(j *job, b *accounting.Budget, d *device, least accounting.Bytes) (shared, onDevice accounting.Bytes) {
	s := j.shared
	if s == nil {
		return 0, a.ledger.MinGrowth(b, d.Index, least, nil)
	}
	shared = a.ledger.MinGrowth(b, d.Index, least, s.budget)
	l := s.limits(d)
	onDevice = max(s.budget.Load(d.Index).Plus(shared), min(l.Min, l.Max)).Less(s.budget.Account(d.Index).Committed)
	return shared, onDevice
}
