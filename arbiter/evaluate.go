package arbiter

import (
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/reading"
)

// This file evaluates whether a request fits. The entry is evaluate: cycle.go calls it for each waiting request, decide.go for a new
// request, and deadlock.go on a copy of the state. This file also computes the figures of a refusal. serve.go and refuse.go carry out the
// result.

// evaluate evaluates whether a ticket can be served now, and stores in its candidates the limits that refuse it. It grants nothing. But it
// may recall idle credit and the stream count from the ticket's own lease, and may count managed memory of that lease as away from the
// device, because these would take room that the ticket can use.
func (a *Arbiter) evaluate(t *ticket) evaluation {
	for i := range t.candidates {
		t.candidates[i].refusedBy = t.candidates[i].refusedBy[:0]
	}
	if t.lease != nil {
		t.evaluation = a.evaluateLease(t)
	} else {
		t.evaluation = a.evaluateStart(t)
	}
	return t.evaluation
}

// neverFits returns a final evaluation if a lease could not get these amounts even if all other jobs released what they hold. Reasons: the
// device is lost, the rule does not allow it, the request is larger than could ever fit, or there is no room for an amount for which no
// request may wait, such as streams.
func (a *Arbiter) neverFits(l *lease, takes accounting.Amounts) evaluation {
	no := func(why Reason, r accounting.Refusal) evaluation {
		r.Device = l.device.Index
		return evaluation{final: true, reason: why, refusal: &r}
	}
	n := takes[accounting.Memory]
	if l.gone() {
		return no(ReasonDeviceLost, accounting.Refusal{Amount: accounting.Memory, Requested: n})
	}
	if !l.mayUse() {
		return no(ReasonDenied, accounting.Refusal{Amount: accounting.Memory, Requested: n})
	}
	most := l.maxInForce()
	if takes[accounting.Present] == 0 { // managed memory: it need not be on the device
		most = l.Max()
	}
	if n > most { // recalling idle credit cannot help
		return no(ReasonTooLarge, accounting.Refusal{Amount: accounting.Memory, Requested: n,
			Remaining: min(l.Room(), most), Limit: most})
	}
	for k := range takes { // amounts for which requests may wait are checked later, after the requests that already wait for them
		if accounting.Amount(k).Awaited() {
			takes[k] = 0
		}
	}
	if r := l.Check(takes); r != nil {
		return evaluation{final: true, reason: ReasonStreams, refusal: r}
	}
	return evaluation{}
}

// evaluateLease evaluates a request of a lease.
func (a *Arbiter) evaluateLease(t *ticket) evaluation {
	l, s := t.lease, t.only()
	switch t.kind {
	case WantsContexts:
		if t.bytes = a.contextsNeed(l, t.count); t.driverFull { // it waits until the device shows room for one
			t.bytes = max(t.bytes, l.newContexts(t.count, l.device.contextRoom()))
		}
	case WantsStreams: // the count may have been delegated again since the request began to wait
		a.revokeStreams(l)
	}
	if a.threadsCrowded(l, t.thread) {
		return evaluation{final: true, reason: ReasonThreads, refusal: &accounting.Refusal{Device: l.device.Index, Requested: t.bytes}}
	}
	a.recallWhileAway(l)
	if t.bytes > 0 && a.chargedToBudgets(t) {
		t.recalled = t.recalled.Plus(a.recallIdle(l, a.idle(l))) // first count what the process has freed
	}
	if t.kind == WantsBytes && !t.managed {
		a.moveManagedAway(l, t.bytes)
	}
	need := t.bytes
	if v := a.neverFits(l, t.takes(a)); v.final {
		return v
	}
	tight, final := a.fullLimits(t)
	if final.final {
		return final
	}
	payer := a.chargedNode(t)
	for sh := range t.shares {
		if payer.Growth(need, sh.budget) > 0 {
			a.checkLimit(t, s, sh.limitOn(s.device), slices.Contains(tight, sh.budget))
		}
	}
	a.checkPermits(t, s, permit.Kinds{permit.Slot: !a.needsNoSlot(l, t.thread)}, l.session.slots)
	if payer.Growth(t.memory(need)[accounting.Present], nil) > 0 {
		noRoomShown := t.driverFull && need > s.device.Total.Less(s.device.shown)
		a.checkLimit(t, s, &s.device.bytes, slices.Contains(tight, nil) || noRoomShown)
	}
	return s.evaluation()
}

// evaluation returns the result on one candidate device: the ticket fits, or waits at the narrowest limit that refuses it.
func (s *candidate) evaluation() evaluation {
	if len(s.refusedBy) == 0 {
		return evaluation{fits: s}
	}
	switch at := s.refusedBy[0]; {
	case at.shared != nil:
		return evaluation{reason: ReasonSharedFull}
	case at.within != nil:
		return evaluation{reason: ReasonOverBudget}
	case at.ofPermits():
		return evaluation{reason: ReasonSlots}
	}
	return evaluation{reason: ReasonDeviceFull}
}

// checkLimit stores a limit in s if it refuses the ticket: the limit has no room, or an earlier request blocks the ticket there. It must be
// called for narrower limits first.
func (a *Arbiter) checkLimit(t *ticket, s *candidate, at *limit, noRoom bool) {
	if noRoom || a.blocked(at, t, s.heldSince) {
		s.refusedBy = append(s.refusedBy, refusingLimit{at, noRoom})
	}
}

// checkPermits stores in s the limit that refuses the permits asks, if any. ownLimit is the slot limit of the program itself; 0: none.
//
// A request for another kind always asks for a slot too (job.asks), so that a request without a slot asks for no permit. Whichever kind
// refuses, the stored limit is that of slots, at which requests for permits of all kinds wait and are watched (limit.watchState).
func (a *Arbiter) checkPermits(t *ticket, s *candidate, asks permit.Kinds, ownLimit int) {
	if s.asks = asks; !asks[permit.Slot] {
		return
	}
	d := s.device
	noRoom, own := d.full(t.job, asks, ownLimit)
	if own {
		s.refusedBy = append(s.refusedBy, refusingLimit{&d.ownSlotLimit, true})
		return
	}
	for k, asked := range asks {
		if asked && (noRoom || a.blocked(&d.permitLimits[k], t, time.Time{})) {
			s.refusedBy = append(s.refusedBy, refusingLimit{&d.permitLimits[permit.Slot], noRoom})
			return
		}
	}
}

// fullLimits returns the limits in the ledger that have no room for a request: shared budgets, and nil for the device. It returns a final
// evaluation if waiting cannot help: the lease's own budget has no room, or the lease or its job itself uses so much that too little is
// left at a limit.
func (a *Arbiter) fullLimits(t *ticket) (fullLimits []*accounting.Budget, final evaluation) {
	l, need := t.lease, t.bytes
	if need == 0 {
		return nil, evaluation{}
	}
	for _, b := range a.chargedNode(t).FullLimits(t.memory(need)) {
		most, why := l.device.grantable(), ReasonDeviceFull
		if b != nil {
			most, why = b.Limits(l.device.Index).Max, ReasonSharedFull
		}
		sh := sharedOf(b)
		if b != nil && sh == nil {
			if r := a.overOwnBudget(t); r != nil {
				return nil, evaluation{final: true, reason: ReasonOverBudget, refusal: r}
			}
		} else if a.ownUse(t, sh).Plus(need) > most && !final.final {
			final = evaluation{final: true, reason: why}
		} else {
			fullLimits = append(fullLimits, b)
		}
	}
	return fullLimits, final
}

// refusal returns the figures of the limit that refuses a ticket, as if all idle credit had been recalled.
func (a *Arbiter) refusal(t *ticket, why Reason) *accounting.Refusal {
	switch {
	case t.evaluation.refusal != nil:
		return t.evaluation.refusal
	case len(t.candidates) == 0:
		return &accounting.Refusal{}
	case t.lease == nil:
		return a.refusalOfStart(t)
	}
	if r := t.short; a.chargedToBudgets(t) && t.bytes > 0 {
		if r == nil {
			r = a.shortage(t)
		}
		if r != nil && (why == ReasonBusy || reasonOf(r) == why) {
			return r
		}
	}
	for r := range a.chargedNode(t).Refusals(t.memory(t.bytes)) {
		if got := reasonOf(r); !a.chargedToBudgets(t) || got == why || got == t.evaluation.reason {
			return r
		}
	}
	d, left := t.lease.device, accounting.Bytes(0) // no limit is full: earlier requests block the ticket
	if !a.chargedToBudgets(t) {
		left = min(a.ledger.Available(nil, d.Index), t.bytes.Less(1))
	}
	return &accounting.Refusal{Amount: accounting.Memory, Device: d.Index, Requested: t.bytes, Remaining: left, Limit: a.ledger.Device(d.Index).Limit}
}

// needsReading reports whether a request of a lease must not be refused before a reading. Either it would have room without what is assumed
// for contexts that no reading has shown. Or it asks for a context whose cost is a guess, and the reading of another context will show the
// cost.
func (a *Arbiter) needsReading(t *ticket) bool {
	l, why := t.lease, t.shortOf()
	switch {
	case l == nil || l.device.hung || l.device.unnamed || t.lacks(refusingLimit.ofPermits) || a.assumed(l.device) == 0:
		return false
	case why != ReasonDeviceFull && (!a.chargesOverhead(l.session.job) || why != ReasonSharedFull && why != ReasonOverBudget):
		return false
	case t.kind == WantsContexts && l.device.contextCost() == 0: // its cost is a guess
		return true
	}
	return a.fitsWithoutAssumed(t)
}

// fitsWithoutAssumed reports whether the limits above a request would have room for it if contexts that no reading has shown took nothing.
func (a *Arbiter) fitsWithoutAssumed(t *ticket) (fits bool) {
	// The charges change only for this test: they must not cause a cycle or a search.
	defer func(cycle, search bool) { a.cycleNeeded, a.searchNeeded = cycle, search }(a.cycleNeeded, a.searchNeeded)
	for l := range a.leasesOn(t.lease.device) {
		if extra := l.extra; extra.Assumed() > 0 && l.session.alive() && !l.lost {
			charge := func(as reading.Extra) {
				l.extra = as
				l.Charge(a.chargeOf(l))
				l.SetOverhead(l.uncharged())
			}
			charge(extra.Shown())
			defer charge(extra)
		}
	}
	for r := range a.chargedNode(t).Refusals(t.memory(t.bytes)) {
		if _, gain := a.donors(t.lease, r); gain < r.Short {
			return false
		}
	}
	return true
}

// refusalOfStart returns the figures of the limit that refuses the start of a job or a session.
func (a *Arbiter) refusalOfStart(t *ticket) *accounting.Refusal {
	var plain *accounting.Refusal
	for i := range t.candidates {
		d := t.candidates[i].device
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

// overOwnBudget returns the refusal if the lease's own budget would have no room even if all idle credit below it were recalled; else nil.
func (a *Arbiter) overOwnBudget(t *ticket) *accounting.Refusal {
	for r := range a.shortages(t) {
		if reasonOf(r) == ReasonOverBudget { // an earlier refusal may come from a limit that other jobs share
			return r
		}
	}
	return nil
}

// ownUse returns the bytes for which a ticket must not wait, because its own program uses them. If of is nil, these are the bytes that its
// lease uses on the device, and contexts count only as far as readings have shown them. Else they are the bytes that its whole job uses
// there below the shared budget of.
func (a *Arbiter) ownUse(t *ticket, of *shared) accounting.Bytes {
	part := func(l *lease) accounting.Bytes {
		return l.Granted().Less(a.idle(l)).Less(l.Away()).Plus(max(l.Charged(), l.extra.Cost())).Less(l.extra.Assumed())
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

// evaluateStart evaluates whether a job or a session can begin: whether there is room for its reservation and, for a job, also a slot, a
// claim or the sole use of its devices. If any one of several devices is enough, it prefers a device on which no slot is taken.
func (a *Arbiter) evaluateStart(t *ticket) evaluation {
	var worst, shared evaluation // shared: the first device on which it fits beside other holders of slots
	waits := false               // the ticket may fit on a device later
	for i := range t.candidates {
		s := &t.candidates[i]
		v := evaluation{final: true, reason: ReasonDeviceLost}
		if !s.device.lost {
			v = a.evaluateStartOn(t, s)
		}
		switch {
		case v.final && !t.any, v.fits != nil && t.any && len(s.device.permits[permit.Slot]) == 0:
			return v
		case v.fits != nil && t.any && shared.fits == nil:
			shared = v
		case v.final: // it can never fit here: let the ticket wait at a limit that blocks no other request
			s.refusedBy = append(s.refusedBy[:0], refusingLimit{&s.device.ownSlotLimit, true})
		case v.fits == nil:
			waits = true
		}
		if i == 0 || worst.final && !v.final || worst.fits != nil && v.fits == nil {
			worst = v
		}
	}
	switch {
	case shared.fits != nil:
		return shared
	case !waits && !t.any:
		return evaluation{fits: &candidate{}}
	}
	return worst
}

// evaluateStartOn does the work of evaluateStart for one device.
func (a *Arbiter) evaluateStartOn(t *ticket, s *candidate) evaluation {
	j, d := t.job, s.device
	least, budget := t.reserves(d)
	if v := a.neverStarts(t, d, least, budget); v.final {
		return v
	}
	check := func(of *accounting.Budget, at *limit) {
		if grows := a.ledger.MinGrowth(budget, d.Index, least, of); grows > 0 {
			a.checkLimit(t, s, at, grows > a.ledger.Available(of, d.Index))
		}
	}
	for in := range t.reservesIn {
		check(in.budget, in.limitOn(d))
	}
	for sh := range t.shares {
		check(sh.budget, sh.limitOn(d))
	}
	var asks permit.Kinds
	if t.kind == wantsJob && j.keeps(d) {
		asks = j.asks()
	}
	a.checkPermits(t, s, asks, 0)
	if onDevice := a.growth(j, budget, d, least).Plus(a.ledger.OverheadGrowth(budget, d.Index, d.headroomFor(budget, least))); onDevice > 0 {
		a.checkLimit(t, s, &d.bytes, onDevice > a.ledger.Available(nil, d.Index))
	}
	return s.evaluation()
}

// neverStarts returns a final evaluation if a reservation can never fit on a device, below a shared budget, or in its own job.
func (a *Arbiter) neverStarts(t *ticket, d *device, least accounting.Bytes, b *accounting.Budget) evaluation {
	if least == 0 {
		return evaluation{}
	}
	final := func(why Reason) evaluation {
		r := a.checkMin(b, d, least)
		if r == nil {
			r = &accounting.Refusal{Device: d.Index, Requested: least, Limit: d.grantable()}
		}
		return evaluation{final: true, reason: why, refusal: r}
	}
	if most := d.mostMin(); least > most {
		return evaluation{final: true, reason: ReasonTooLarge,
			refusal: &accounting.Refusal{Device: d.Index, Requested: least, Remaining: most, Limit: d.grantable()}}
	}
	for sh := range t.shares {
		if least > sh.budget.Limits(d.Index).Max && (!sh.ofCgroup() || b != t.job.budget) {
			return final(ReasonSharedFull)
		}
	}
	for in := range t.reservesIn {
		if least > in.budget.Limits(d.Index).Max {
			return final(ReasonOverBudget)
		}
	}
	if b != t.job.budget || t.job.around != nil && t.job.request.Cgroup == "" && t.kind != wantsReturn { // a session's reservation: those of other sessions of the job, or of other jobs inside the same one, may leave too little
		if r := a.ledger.CheckMin(b, d.Index, least, 0); r != nil && reasonOf(r) == ReasonOverBudget {
			return final(ReasonOverBudget)
		}
	}
	return evaluation{}
}

// growth returns by how many bytes a reservation raises the sum that is promised on a device. This includes the reservation of the shared
// budget above the job, if that is still to be made.
func (a *Arbiter) growth(j *job, b *accounting.Budget, d *device, least accounting.Bytes) accounting.Bytes {
	s := j.outermost().shared
	if s == nil {
		return a.ledger.MinGrowth(b, d.Index, least, nil)
	}
	inShared := a.ledger.MinGrowth(b, d.Index, least, s.budget)
	return max(s.budget.Load(d.Index).Plus(inShared), s.limits(d).Least()).Less(s.budget.Account(d.Index).Committed)
}
