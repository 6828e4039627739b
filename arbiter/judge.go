package arbiter

import (
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/permit"
)

// This file judges whether a request fits: judge is the entry. cycle.go calls it for each waiting request, decide.go for a new one, and deadlock.go on a
// copy of the books. It also has the figures of a refusal. serve.go and refuse.go carry the verdict out.

// judge judges whether a ticket can be served now, and notes in its spots which limits refuse it. It grants nothing. But from the
// ticket's own lease it may take back idle credit and lent streams, and it may count the lease's managed memory as away from the device, because
// these would take room that the ticket can use.
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

// never returns a final verdict if a lease's request for these amounts cannot be granted even if all other jobs released what they hold: the
// device is lost, the request is for more than could ever fit, or an amount has no room for which no request may wait, such as streams.
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
	if n > most { // taking back idle credit cannot help
		return no(ReasonTooLarge, accounting.Refusal{Amount: accounting.Memory, Requested: n,
			Remaining: min(l.Room(), most), Limit: most})
	}
	for k := range takes { // amounts for which requests may wait are judged later, behind the requests that wait for them
		if accounting.Amount(k).Awaited() {
			takes[k] = 0
		}
	}
	if r := l.Check(takes); r != nil {
		return verdict{final: true, reason: ReasonStreams, refusal: r}
	}
	return verdict{}
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
		t.taken = t.taken.Plus(a.take(l, a.idle(l))) // first count what the process has freed
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

// judgeLimit adds a limit to those that refuse a ticket on a device, if the limit has no room (hard) or an earlier request blocks the ticket
// there. It must be called for narrower limits first.
func (a *Arbiter) judgeLimit(t *ticket, s *spot, at *limit, hard bool) {
	if hard || a.behind(at, t, s.since) {
		s.full = append(s.full, full{at, hard})
	}
}

// judgePermits notes which limit, if any, refuses the permits of a device for which a ticket asks. wish is the program's own slot limit; 0: none.
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

// tight returns the limits that have no room for a lease's request, as the ledger says: budgets that are shared with other jobs, and nil for the
// device. It returns a final verdict if waiting cannot help: the lease's own budget has no room, or the process, or its job, itself uses
// so much that too little is left at one of these limits.
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

// refusal returns the figures at the limit that refuses a ticket, as if all idle credit had been taken back.
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

// refusalOfStart returns the figures at the limit that refuses a job or a process before it begins.
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

// beyondOwn returns the refusal if a lease's own budget has no room for a request even after idle credit below it has been taken back; else nil.
func (a *Arbiter) beyondOwn(t *ticket) *accounting.Refusal {
	for r := range a.shortages(t) {
		if reasonOf(r) == ReasonOverBudget { // also if a limit shared with others refuses it
			return r
		}
	}
	return nil
}

// ownPart returns the bytes for which a ticket must not wait, because its own program uses them: at a device the bytes that its lease has in
// use there, at a shared budget (of) the bytes that its whole job has in use below that budget.
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

// judgeStart judges whether a job or a process can begin: whether there is room for its reservation, and for a job also its slots, its claim, or the
// sole use of its devices. If any one of several devices is enough, it prefers a device whose slots are all free.
func (a *Arbiter) judgeStart(t *ticket) verdict {
	var worst, shared verdict // shared: the first device on which it fits beside other slot holders
	waits := false            // it may fit on a device later
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
		case v.final: // it can never fit here: a wish blocks no other request
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

// judgeSpot is judgeStart for one device.
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

// neverStarts returns a final verdict if a reservation can never fit on a device, below a shared budget, or within its own job.
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

// growth returns by how many bytes a reservation raises the sum that is promised on a device. That includes the reservation that the rule
// makes for the shared budget above the job, if that is still to be made.
func (a *Arbiter) growth(j *job, b *accounting.Budget, d *device, least accounting.Bytes) accounting.Bytes {
	s := j.shared
	if s == nil {
		return a.ledger.MinGrowth(b, d.Index, least, nil)
	}
	inShared := a.ledger.MinGrowth(b, d.Index, least, s.budget)
	return max(s.budget.Load(d.Index).Plus(inShared), s.limits(d).Least()).Less(s.budget.Account(d.Index).Committed)
}
