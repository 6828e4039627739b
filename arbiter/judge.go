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
	d := l.device
	if l.lost {
		return verdict{final: true, reason: ReasonDeviceLost, refusal: t.figures(0, 0)}
	}
	v := verdict{spot: s}
	shared, device, final := a.refusals(t)
	if final != nil {
		return *final
	}
	a.judgeSlot(now, t, s, l.session.slots, !a.inside(l, t.thread), false, false)
	need := t.need()
	if need > 0 && (!a.chained(t) || l.sum.Growth(need, nil) > 0) {
		s.judge(atBytes, device != nil, a.behindBytes(now, d, t))
	}
	if sh := l.session.job.shared; sh != nil && need > 0 && a.chained(t) && l.sum.Growth(need, sh.budget) > 0 {
		s.judge(atShared, shared != nil, a.behind(now, sh.line(d), t))
	}
	switch {
	case s.at == 0:
		return v
	case s.at&atShared != 0:
		v.reason, v.refusal = ReasonSharedFull, shared
	case s.at&(atSlots|atWish) != 0:
		v.reason = ReasonSlots
	default:
		v.reason, v.refusal = ReasonDeviceFull, device
	}
	if v.refusal == nil {
		v.refusal = t.figures(0, a.ledger.Device(d.Index).Limit)
	}
	v.spot = nil
	return v
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
	s.enters = needs
	if !needs {
		return
	}
	full, own := s.device.full(t.job, wish, claim, exclusive)
	if own {
		s.judge(atWish, true, false)
	} else {
		s.judge(atSlots, full, a.behind(now, &s.device.slots, t))
	}
}

// refusals asks the ledger about a lease's request: what a shared budget says, what the
// device says, and a refusal that is final: by the lease's own budgets, or because what
// is in the way is its own.
func (a *Arbiter) refusals(t *ticket) (shared, device *accounting.Refusal, final *verdict) {
	l, need := t.lease, t.need()
	if need == 0 {
		return nil, nil, nil
	}
	if most := l.budget(); a.chained(t) && t.bytes > most {
		return nil, nil, &verdict{final: true, reason: ReasonTooLarge, refusal: t.figures(min(a.ledger.Room(l.sum), most), most)}
	}
	if !a.chained(t) {
		sums := a.ledger.Device(l.device.Index)
		if left := sums.Limit.Less(sums.Committed); need > left {
			device = t.figures(left, sums.Limit)
			device.Short = need - left
		}
	} else {
		for r := range a.ledger.Refusals(l.sum, need) {
			switch l.session.job.reason(r) {
			case ReasonDeviceFull:
				device = r
			case ReasonSharedFull:
				shared = r
			default:
				if r := a.beyondOwn(t); r != nil {
					return nil, nil, &verdict{final: true, reason: ReasonOverBudget, refusal: r}
				}
			}
		}
	}
	switch {
	case shared != nil && a.ownPart(t, l.session.job).Plus(need) > shared.Limit:
		final = &verdict{final: true, reason: ReasonSharedFull, refusal: shared}
	case device != nil && a.ownPart(t, nil).Plus(need) > l.device.grantable():
		final = &verdict{final: true, reason: ReasonDeviceFull, refusal: device}
	}
	return shared, device, final
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
// and for a job its slots, claim and the sole use of its devices.
func (a *Arbiter) judgeStart(now time.Time, t *ticket) verdict {
	var worst verdict
	waits := false // there is a device that may come to do
	for i := range t.spots {
		s := &t.spots[i]
		v := verdict{final: true, reason: ReasonDeviceLost, refusal: t.figures(0, 0)}
		if !s.device.lost {
			v = a.judgeSpot(now, t, s)
		}
		switch {
		case v.final && !t.any, v.spot != nil && t.any:
			return v
		case v.final: // this one never does; it holds nobody up
			s.at, s.hard = atWish, atWish
		case v.spot == nil:
			waits = true
		}
		if i == 0 || worst.final && !v.final || worst.spot != nil && v.spot == nil {
			worst = v
		}
	}
	if !waits && !t.any {
		return verdict{spot: &spot{}}
	}
	return worst
}

// judgeSpot judges what a job or a process takes on one device before it begins.
func (a *Arbiter) judgeSpot(now time.Time, t *ticket, s *spot) verdict {
	j, d := t.job, s.device
	least, budget := t.reserves(d)
	inShared, onDevice := a.growths(j, budget, d, least)
	v := verdict{spot: s}
	own := a.ledger.CheckMin(budget, d.Index, least)
	switch {
	case least > d.grantable():
		return verdict{final: true, reason: ReasonDeviceFull, refusal: orFigures(own, t, d, least)}
	case own != nil && j.reason(own) == ReasonOverBudget:
		return verdict{final: true, reason: ReasonOverBudget, refusal: own}
	case j.shared != nil && least > j.shared.limits(d).Max:
		return verdict{final: true, reason: ReasonSharedFull, refusal: orFigures(own, t, d, least)}
	}
	r := &j.request
	kept := t.kind == wantsJob && j.keeps(d)
	a.judgeSlot(now, t, s, 0, kept, r.Claim || r.Any, r.Exclusive)
	sums := a.ledger.Device(d.Index)
	if onDevice > 0 {
		s.judge(atBytes, onDevice > sums.Limit.Less(sums.Committed), a.behindBytes(now, d, t))
	}
	if inShared > 0 {
		limit := j.shared.limits(d).Max
		s.judge(atShared, inShared > limit.Less(j.shared.budget.Load(d.Index)), a.behind(now, j.shared.line(d), t))
	}
	switch {
	case s.at == 0:
		return v
	case s.at&atShared != 0:
		v.reason = ReasonSharedFull
	case s.at&(atSlots|atWish) != 0:
		v.reason = ReasonSlots
	default:
		v.reason = ReasonDeviceFull
	}
	v.spot, v.refusal = nil, orFigures(own, t, d, least)
	return v
}

// orFigures returns a refusal, or one made of the plain figures where there is none.
func orFigures(r *accounting.Refusal, t *ticket, d *device, n accounting.Bytes) *accounting.Refusal {
	if r != nil {
		return r
	}
	return &accounting.Refusal{Device: d.Index, Requested: n, Limit: d.grantable()}
}

// reserves returns what a job or a process that begins reserves on a device, and of
// which budget.
func (t *ticket) reserves(d *device) (accounting.Bytes, *accounting.Budget) {
	j, s := t.job, t.session
	if t.kind == wantsJob || j.pending {
		if l := j.wants(d); min(l.Min, l.Max) > 0 || s == nil {
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
