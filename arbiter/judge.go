package arbiter

import (
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/permit"
)

// verdict is the result of judging a ticket: it is refused for good (final), it fits (spot), or, if neither is set, it has to wait.
type verdict struct {
	final   bool                // refused, whatever others release
	spot    *spot               // the device on which it fits; some spot if it needs several devices and fits on all
	reason  Reason              // of the refusal or the wait
	refusal *accounting.Refusal // the figures at the limit that refuses
}

// waits reports whether a request was judged to have to wait.
func (v verdict) waits() bool { return !v.final && v.spot == nil && v.reason != ReasonNone }

// judge judges whether a ticket can be served now, and notes in its spots which limits refuse it. It grants nothing; but of the
// ticket's own lease it may take back idle credit and lent streams, and count managed memory as away from the device, so that these are
// not in its way.
func (a *Arbiter) judge(t *ticket) verdict {
	for i := range t.spots {
		t.spots[i].full = t.spots[i].full[:0]
	}
	if t.lease != nil {
		t.why = a.judgeLease(t)
	} else {
		t.why = a.judgeStart(t)
	}
	return t.why
}

// memory returns the amounts that n bytes of a ticket's memory add: managed memory adds nothing to the device's sum.
func (t *ticket) memory(n accounting.Bytes) accounting.Amounts {
	if t.managed {
		return accounting.Apart(n)
	}
	return accounting.Whole(n)
}

// chained reports whether a request is charged to the budgets above its lease. If not (contexts and holds, unless the policy charges
// overhead), it is charged to the device alone.
func (a *Arbiter) chained(t *ticket) bool {
	return t.kind != WantsContexts && t.kind != WantsHolds || a.policy.ChargeOverhead
}

// takes returns the amounts that a ticket adds to its lease.
func (t *ticket) takes(a *Arbiter) (all accounting.Amounts) {
	if a.chained(t) {
		all = t.memory(t.bytes)
	}
	if t.kind == WantsStreams {
		all[accounting.Streams] = accounting.Bytes(t.count)
	}
	return all
}

// never returns a final verdict if a lease's request for these amounts is refused whatever others release: its device is lost, it asks for more
// than could ever fit, or there is no room for an amount that no request may wait for, such as streams.
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
	if n > most { // no idle credit that is called back could help
		return no(ReasonTooLarge, accounting.Refusal{Amount: accounting.Memory, Requested: n,
			Remaining: min(l.Room(), most), Limit: most})
	}
	for k := range takes { // an amount that a request may wait for is judged later, with the requests that wait for it
		if accounting.Amount(k).Awaited() {
			takes[k] = 0
		}
	}
	if r := l.Check(takes); r != nil {
		return verdict{final: true, reason: ReasonStreams, refusal: r}
	}
	return verdict{}
}

// payer returns the node of the ledger that a request is charged to: its lease, or its device alone.
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
	case WantsStreams: // the count may be lent again since the request began to wait
		a.takeStreams(l)
	}
	if a.threadsCrowded(l, t.thread) {
		return verdict{final: true, reason: ReasonThreads, refusal: &accounting.Refusal{Device: l.device.Index, Requested: t.bytes}}
	}
	a.takeApart(l)
	if t.bytes > 0 && a.chained(t) {
		t.taken = t.taken.Plus(a.take(l, a.idle(l))) // what its threads have freed goes back before it is judged
	}
	if t.kind == WantsBytes && !t.managed {
		a.giveWay(l, t.bytes)
	}
	need := t.bytes
	if v := a.never(l, t.takes(a)); v.final {
		return v
	}
	tight, final := a.tight(t)
	if final.final {
		return final
	}
	payer := a.payer(t)
	for sh := range t.shares {
		if payer.Growth(need, sh.budget) > 0 {
			a.judgeLimit(t, s, sh.limitOn(s.device), slices.Contains(tight, sh.budget))
		}
	}
	a.judgePermits(t, s, permit.Kinds{permit.Slot: !a.inside(l, t.thread)}, l.session.slots)
	if payer.Growth(t.memory(need)[accounting.Present], nil) > 0 {
		a.judgeLimit(t, s, &s.device.bytes, slices.Contains(tight, nil))
	}
	return s.verdict()
}

// verdict returns the verdict on a ticket that was judged on a device: it fits, or waits at the narrowest limit that refuses it.
func (s *spot) verdict() verdict {
	if len(s.full) == 0 {
		return verdict{spot: s}
	}
	switch at := s.full[0]; {
	case at.shared != nil:
		return verdict{reason: ReasonSharedFull}
	case at.ofPermits():
		return verdict{reason: ReasonSlots}
	}
	return verdict{reason: ReasonDeviceFull}
}

// judgeLimit notes whether a limit refuses a ticket on a device: because it has no room (hard), or because an earlier request blocks the ticket
// there. It is called for the narrower limits first.
func (a *Arbiter) judgeLimit(t *ticket, s *spot, at *limit, hard bool) {
	if hard || a.behind(at, t, s.since) {
		s.full = append(s.full, full{at, hard})
	}
}

// judgePermits judges whether a ticket can have the permits of a device that it asks for. wish is the program's own slot limit; 0: none.
func (a *Arbiter) judgePermits(t *ticket, s *spot, asks permit.Kinds, wish int) {
	if s.asks = asks; !asks[permit.Slot] {
		return
	}
	d := s.device
	noRoom, own := d.full(t.job, asks, wish)
	if own {
		s.full = append(s.full, full{&d.wish, true})
		return
	}
	for k, asked := range asks {
		if asked && (noRoom || a.behind(&d.entry[k], t, time.Time{})) {
			s.full = append(s.full, full{&d.entry[permit.Slot], noRoom})
			return
		}
	}
}

// tight asks the ledger which limits have no room for a lease's request: budgets that it shares with others, and the device (nil). final is
// set if waiting cannot help: the lease's own budget has no room, or what the process itself uses leaves too little at such a limit.
func (a *Arbiter) tight(t *ticket) (tight []*accounting.Budget, final verdict) {
	l, need := t.lease, t.bytes
	if need == 0 {
		return nil, verdict{}
	}
	for _, b := range a.payer(t).Tight(t.memory(need)) {
		most, why := l.device.grantable(), ReasonDeviceFull
		if b != nil {
			most, why = b.Limits(l.device.Index).Max, ReasonSharedFull
		}
		sh := sharedOf(b)
		if b != nil && sh == nil {
			if r := a.beyondOwn(t); r != nil {
				return nil, verdict{final: true, reason: ReasonOverBudget, refusal: r}
			}
		} else if a.ownPart(t, sh).Plus(need) > most && !final.final {
			final = verdict{final: true, reason: why}
		} else {
			tight = append(tight, b)
		}
	}
	return tight, final
}

// refusal returns the figures at the limit for which a ticket is refused, as if all idle credit had been called back.
func (a *Arbiter) refusal(t *ticket, why Reason) *accounting.Refusal {
	switch {
	case t.why.refusal != nil:
		return t.why.refusal
	case len(t.spots) == 0:
		return &accounting.Refusal{}
	case t.lease == nil:
		return a.refusalOfStart(t)
	}
	if r := t.short; a.chained(t) && t.bytes > 0 {
		if r == nil {
			r = a.shortage(t)
		}
		if r != nil && (why == ReasonBusy || reasonOf(r) == why) {
			return r
		}
	}
	for r := range a.payer(t).Refusals(t.memory(t.bytes)) {
		if got := reasonOf(r); !a.chained(t) || got == why || got == t.why.reason {
			return r
		}
	}
	d, left := t.lease.device, accounting.Bytes(0) // no limit is full: earlier requests block it
	if !a.chained(t) {
		left = min(a.ledger.Left(nil, d.Index), t.bytes.Less(1))
	}
	return &accounting.Refusal{Amount: accounting.Memory, Device: d.Index, Requested: t.bytes, Remaining: left, Limit: a.ledger.Device(d.Index).Limit}
}

// refusalOfStart returns the figures at the limit for which a job or a process is refused before it begins.
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

// beyondOwn returns the refusal if a lease's own budget has no room for a request even with all of the lease's idle credit called back; else nil.
func (a *Arbiter) beyondOwn(t *ticket) *accounting.Refusal {
	for r := range a.shortages(t) {
		if reasonOf(r) == ReasonOverBudget { // also if a limit shared with others refuses it
			return r
		}
	}
	return nil
}

// ownPart returns the bytes that a ticket's own lease has in use on its device; of a shared budget, the bytes that its whole job has in use
// below it. A request never waits for its own process or job to free these.
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

// judgeStart judges what a job, or a process, takes before it begins: what it reserves, and for a job its slots, its claim or the sole use of its
// devices. If it may choose a device, one without any slot holder is preferred to one that has room beside others.
func (a *Arbiter) judgeStart(t *ticket) verdict {
	var worst, shared verdict // shared: among devices to choose from, the first that has room beside others
	waits := false            // there is a device on which it may fit later
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
		case v.final: // it never fits here, and blocks no other request
			s.full = append(s.full[:0], full{&s.device.wish, true})
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
	for sh := range t.shares {
		if grows := a.ledger.MinGrowth(budget, d.Index, least, sh.budget); grows > 0 {
			a.judgeLimit(t, s, sh.limitOn(d), grows > a.ledger.Left(sh.budget, d.Index))
		}
	}
	var asks permit.Kinds
	if t.kind == wantsJob && j.keeps(d) {
		asks = j.asks()
	}
	a.judgePermits(t, s, asks, 0)
	if onDevice := a.growth(j, budget, d, least).Plus(a.ledger.BesideGrowth(budget, d.Index, d.headroomFor(budget, least))); onDevice > 0 {
		a.judgeLimit(t, s, &d.bytes, onDevice > a.ledger.Left(nil, d.Index))
	}
	return s.verdict()
}

// neverStarts returns a final verdict if a reservation can never have room on a device, below a shared budget, or within its own job.
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
	if b != t.job.budget { // a process's reservation: those of other processes of its job may leave too little
		if r := a.ledger.CheckMin(b, d.Index, least, 0); r != nil && reasonOf(r) == ReasonOverBudget {
			return final(ReasonOverBudget)
		}
	}
	return verdict{}
}

// reserves returns how many bytes a job or a process that begins reserves on a device, and the budget that they are reserved for.
func (t *ticket) reserves(d *device) (accounting.Bytes, *accounting.Budget) {
	j, s := t.job, t.session
	if t.kind == wantsJob || j.pending {
		l := j.Memory(d.bounds())
		if s == nil && j.request.NoWait && l.Min == 0 { // it does not start without room for what the rule reserves for its processes
			l = j.newProcess().Memory(d.bounds())
		}
		if l.Least() > 0 || s == nil {
			return l.Least(), j.budget
		}
	}
	return s.Memory(d.bounds()).Least(), s.budget
}

// growth returns by how many bytes a reservation makes the sum on the device grow. It counts what the rule reserves for the shared budget
// above the job as well.
func (a *Arbiter) growth(j *job, b *accounting.Budget, d *device, least accounting.Bytes) accounting.Bytes {
	s := j.shared
	if s == nil {
		return a.ledger.MinGrowth(b, d.Index, least, nil)
	}
	inShared := a.ledger.MinGrowth(b, d.Index, least, s.budget)
	return max(s.budget.Load(d.Index).Plus(inShared), s.limits(d).Least()).Less(s.budget.Account(d.Index).Committed)
}
