package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/permit"
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
func (a *Arbiter) judge(t *ticket) verdict {
	for i := range t.spots {
		t.spots[i].at, t.spots[i].hard = 0, 0
	}
	if t.lease != nil {
		t.why = a.judgeLease(t)
	} else {
		t.why = a.judgeStart(t)
	}
	return t.why
}

// memory returns the amounts of n bytes of memory that a device has to hold.
func memory(n accounting.Bytes) accounting.Amounts { return accounting.Whole(n) }

// memory returns the amounts that n bytes of a ticket's memory add: managed memory adds nothing to the device's sum.
func (t *ticket) memory(n accounting.Bytes) accounting.Amounts {
	if t.managed {
		return accounting.Apart(n)
	}
	return memory(n)
}

// need is what a request still takes of the sums.
func (t *ticket) need() accounting.Bytes { return t.bytes - t.own }

// chained reports whether a request is charged to the budgets above its lease; else
// to the device alone.
func (a *Arbiter) chained(t *ticket) bool {
	return t.kind != WantsContexts && t.kind != WantsHolds || a.policy.ChargeOverhead
}

// takes is what a ticket adds to the sums of its lease by itself.
func (t *ticket) takes(a *Arbiter) (all accounting.Amounts) {
	if a.chained(t) {
		all = t.memory(t.bytes)
	}
	if t.kind == WantsStreams {
		all[accounting.Streams] = accounting.Bytes(t.count)
	}
	return all
}

// never tells whether a lease is refused whatever others do: its device is lost, it is more than
// could ever fit, or nobody waits for what there is no room for.
func (a *Arbiter) never(l *lease, takes accounting.Amounts) verdict {
	no := func(why Reason, r accounting.Refusal) verdict {
		r.Device = l.device.Index
		return verdict{final: true, reason: why, refusal: &r}
	}
	n := takes[accounting.Memory]
	if l.gone() {
		return no(ReasonDeviceLost, accounting.Refusal{Amount: accounting.Memory, Requested: n})
	}
	most := l.maxInForce()
	if takes[accounting.Present] == 0 { // managed memory: the device need not hold it
		most = l.Max()
	}
	if n > most { // no recall could ever help
		return no(ReasonTooLarge, accounting.Refusal{Amount: accounting.Memory, Requested: n,
			Remaining: min(l.Room(), most), Limit: most})
	}
	for k := range takes { // what one may wait for is judged with what others want of it
		if accounting.Amount(k).Awaited() {
			takes[k] = 0
		}
	}
	if r := l.Check(takes); r != nil {
		return verdict{final: true, reason: ReasonStreams, refusal: r}
	}
	return verdict{}
}

// payer is what a request is charged to: its lease, or its device alone.
func (a *Arbiter) payer(t *ticket) *accounting.Lease {
	if a.chained(t) {
		return &t.lease.Lease
	}
	return &t.lease.device.direct
}

// judgeLease judges a request of a lease.
func (a *Arbiter) judgeLease(t *ticket) verdict {
	l, s := t.lease, t.alone()
	switch t.kind {
	case WantsContexts:
		t.bytes = l.contextsNeed(t.count)
	case WantsStreams: // one that waited, while others of its process were served
		a.takeStreams(l)
	}
	a.takeApart(l)
	switch {
	case t.managed:
		a.take(l, a.idle(l)) // idle credit counts against the device, managed memory need not
	case t.kind == WantsBytes && t.own == 0:
		a.giveWay(l, t.need())
	}
	need := t.need()
	if v := a.never(l, t.takes(a)); v.final {
		return v
	}
	hard, final := a.tight(t)
	if final.final {
		return final
	}
	a.judgePermits(t, s, permit.Kinds{permit.Slot: !a.inside(l, t.thread)}, l.session.slots)
	payer := a.payer(t)
	if payer.Growth(t.memory(need)[accounting.Present], nil) > 0 {
		s.judge(atBytes, hard&atBytes != 0, a.behindBytes(t, s))
	}
	for at, sh := range t.limits {
		if payer.Growth(need, sh.budget) > 0 {
			s.judge(at, hard&at != 0, a.behindShared(t, s, sh))
		}
	}
	if s.at == 0 {
		return verdict{spot: s}
	}
	return verdict{reason: s.reason()}
}

// reason is the narrowest limit that refuses on a device.
func (s *spot) reason() Reason {
	switch {
	case s.at&atBudgets != 0:
		return ReasonSharedFull
	case s.at&(atSlots|atWish) != 0:
		return ReasonSlots
	}
	return ReasonDeviceFull
}

// judge notes that a limit refuses: by itself, or because others come first.
func (s *spot) judge(at limitSet, hard, behind bool) {
	if hard {
		s.hard |= at
	}
	if hard || behind {
		s.at |= at
	}
}

// behindBytes reports whether a request is blocked at the bytes of a device.
func (a *Arbiter) behindBytes(t *ticket, s *spot) bool { return a.behind(&s.device.bytes, t, s.since) }

// behindShared reports whether a request is blocked at a budget on a device that jobs share.
func (a *Arbiter) behindShared(t *ticket, s *spot, sh *shared) bool {
	return a.behind(sh.line(s.device), t, s.since)
}

// judgePermits judges whether there are the permits of a device that a ticket asks for.
func (a *Arbiter) judgePermits(t *ticket, s *spot, asks permit.Kinds, wish int) {
	if s.asks = asks; !asks[permit.Slot] {
		return
	}
	d := s.device
	full, own := d.full(t.job, asks, wish)
	if own {
		s.judge(atWish, true, false)
		return
	}
	behind := false
	for k, asked := range asks {
		behind = behind || asked && a.behind(&d.entry[k], t, time.Time{})
	}
	s.judge(atSlots, full, behind)
}

// tight asks the ledger about a lease's request: which budgets that it shares with others, and
// whether the device (atBytes), have no room for it; and a refusal that is final: by the
// lease's own budgets, or because what is in the way is its own.
func (a *Arbiter) tight(t *ticket) (hard limitSet, final verdict) {
	l, need := t.lease, t.need()
	if need == 0 {
		return 0, verdict{}
	}
	for _, b := range a.payer(t).Tight(t.memory(need)) {
		switch sh := sharedOf(b); {
		case b == nil:
			hard |= atBytes
		case sh != nil:
			hard |= t.limitOf(sh)
		default:
			if r := a.beyondOwn(t); r != nil {
				return 0, verdict{final: true, reason: ReasonOverBudget, refusal: r}
			}
		}
	}
	for at, sh := range t.limits {
		if hard&at != 0 && a.ownPart(t, sh).Plus(need) > sh.budget.Limits(l.device.Index).Max {
			return hard, verdict{final: true, reason: ReasonSharedFull}
		}
	}
	if hard&atBytes != 0 && a.ownPart(t, nil).Plus(need) > l.device.grantable() {
		final = verdict{final: true, reason: ReasonDeviceFull}
	}
	return hard, final
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
	for r := range a.payer(t).Refusals(t.memory(t.bytes)) {
		if got := reasonOf(r); !a.chained(t) || got == why || got == t.why.reason {
			return r
		}
	}
	d, left := t.lease.device, accounting.Bytes(0) // it is only not its turn
	if !a.chained(t) {
		left = min(a.ledger.Left(nil, d.Index), t.bytes.Less(1))
	}
	return &accounting.Refusal{Amount: accounting.Memory, Device: d.Index, Requested: t.bytes, Remaining: left, Limit: a.ledger.Device(d.Index).Limit}
}

// refusalOfStart is the same for what a job or a process takes before it begins.
func (a *Arbiter) refusalOfStart(t *ticket) *accounting.Refusal {
	var plain *accounting.Refusal
	for i := range t.spots {
		d := t.spots[i].device
		least, budget := t.reserves(d)
		if r := a.checkMin(budget, d, least); r != nil && least > 0 {
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
	for r := range a.shortages(t, t.need(), min(a.ownIdle(t), t.need())) {
		if reasonOf(r) == ReasonOverBudget { // whatever limits of others refuse it too
			return r
		}
	}
	return nil
}

// ownPart is what a process (or its job, of a budget that it shares with others) holds itself on its
// device and has in use. Nobody waits for that.
func (a *Arbiter) ownPart(t *ticket, of *shared) accounting.Bytes {
	part := func(l *lease) accounting.Bytes {
		return l.Granted().Less(a.idle(l)).Less(l.Away()).Plus(max(l.Charged(), l.beyond.Cost()))
	}
	if of == nil {
		return part(t.lease)
	}
	var all accounting.Bytes
	for l := range t.job.leasesOn(t.lease.device) {
		if l.session.alive() && among(l.session.shares, of) {
			all = all.Plus(l.Granted().Less(a.idle(l)).Plus(l.Charged()))
		}
	}
	return all
}

// judgeStart judges what a job, or a process, takes before it begins: what it reserves,
// and for a job its slots, claim and the sole use of its devices. Of devices to choose
// from, one that nobody is on comes before one that merely has room.
func (a *Arbiter) judgeStart(t *ticket) verdict {
	var worst, shared verdict // shared: among devices to choose from, the first that has room beside others
	waits := false            // there is a device that may come to do
	for i := range t.spots {
		s := &t.spots[i]
		v := verdict{final: true, reason: ReasonDeviceLost}
		if !s.device.lost {
			v = a.judgeSpot(t, s)
		}
		switch {
		case v.final && !t.any, v.spot != nil && t.any && len(s.device.permits[permit.Slot]) == 0:
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
func (a *Arbiter) judgeSpot(t *ticket, s *spot) verdict {
	j, d := t.job, s.device
	least, budget := t.reserves(d)
	if v := a.neverStarts(t, d, least, budget); v.final {
		return v
	}
	var asks permit.Kinds
	if t.kind == wantsJob && j.keeps(d) {
		asks = j.asks()
	}
	a.judgePermits(t, s, asks, 0)
	if onDevice := a.growth(j, budget, d, least).Plus(a.headroomFor(budget, d, least)); onDevice > 0 {
		s.judge(atBytes, onDevice > a.ledger.Left(nil, d.Index), a.behindBytes(t, s))
	}
	for at, sh := range t.limits {
		if grows := a.ledger.MinGrowth(budget, d.Index, least, sh.budget); grows > 0 {
			s.judge(at, grows > a.ledger.Left(sh.budget, d.Index), a.behindShared(t, s, sh))
		}
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
		r := a.checkMin(b, d, least)
		if r == nil {
			r = &accounting.Refusal{Device: d.Index, Requested: least, Limit: d.grantable()}
		}
		return verdict{final: true, reason: why, refusal: r}
	}
	if most := d.mostMin(); least > most {
		return verdict{final: true, reason: ReasonTooLarge,
			refusal: &accounting.Refusal{Device: d.Index, Requested: least, Remaining: most, Limit: d.grantable()}}
	}
	for sh := range t.shares {
		if least > sh.budget.Limits(d.Index).Max && (!sh.ofCgroup() || b != t.job.budget) {
			return final(ReasonSharedFull)
		}
	}
	if b != t.job.budget { // a process's: what its job has promised others may be in its way
		if r := a.ledger.CheckMin(b, d.Index, least, 0); r != nil && reasonOf(r) == ReasonOverBudget {
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
		l := j.Memory(d.bounds())
		if s == nil && j.request.NoWait && l.Min == 0 { // what its processes are to have, it does not start without
			l = j.newProcess().Memory(d.bounds())
		}
		if l.Least() > 0 || s == nil {
			return l.Least(), j.budget
		}
	}
	return s.Memory(d.bounds()).Least(), s.budget
}

// growth returns by how much the load of the device grows with a reservation, and with what
// the rule reserves for the job's shared budget itself.
func (a *Arbiter) growth(j *job, b *accounting.Budget, d *device, least accounting.Bytes) accounting.Bytes {
	s := j.shared
	if s == nil {
		return a.ledger.MinGrowth(b, d.Index, least, nil)
	}
	inShared := a.ledger.MinGrowth(b, d.Index, least, s.budget)
	return max(s.budget.Load(d.Index).Plus(inShared), s.limits(d).Least()).Less(s.budget.Account(d.Index).Committed)
}
