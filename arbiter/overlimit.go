package arbiter

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file enforces limits that are below what is held. It closes the credit words below a budget that exceeds its limit, recalls idle
// credit, and opens the words again when the budget is within its limit. renew.go, charge.go, ask.go and the cycle call it.

// noteExceeded remembers that a budget exceeds its limit. The credit words are closed later.
func (a *Arbiter) noteExceeded(p account) {
	if _, known := a.exceeded[p]; !known && p.budget.Over(p.device) {
		a.exceeded[p] = false
	}
}

// noteChain calls noteExceeded for each budget above a lease.
func (a *Arbiter) noteChain(l *lease) {
	for b := range l.Budget().Chain() {
		a.noteExceeded(account{b, l.device.Index})
	}
}

// enforce enforces the limit of a budget after the limit, or the held bytes, have changed. If the limit is exceeded, it closes the credit
// words below and recalls idle credit.
func (a *Arbiter) enforce(now time.Time, b *accounting.Budget, device int) {
	p := account{b, device}
	a.noteExceeded(p)
	if _, over := a.exceeded[p]; over {
		a.recallOver(now, p)
	}
}

// recallOver recalls idle credit below a budget that exceeds its limit, and opens the words below it again if that is enough. It closes
// every word before it reads any, so that the clients report what they free in between.
func (a *Arbiter) recallOver(now time.Time, p account) {
	if p.budget.Over(p.device) {
		leases := slices.Collect(owners(p.budget.Leases(p.device)))
		for _, l := range leases {
			a.closeWord(l)
		}
		for _, l := range leases {
			a.recallExcess(l, p)
		}
	}
	a.reopen(now, p)
}

// closeWord closes the credit word of a lease.
func (a *Arbiter) closeWord(l *lease) {
	if l.closed || l.lost || !l.session.alive() {
		return
	}
	l.closed = true
	a.updateFlags(l)
}

// recallExcess recalls idle credit of a lease, at most the bytes by which the budget exceeds its limit.
func (a *Arbiter) recallExcess(l *lease, p account) {
	sums := p.budget.Account(p.device)
	if most := min(a.idle(l), sums.Held.Less(sums.Limit)); most > 0 {
		a.stats.RecalledBytes += uint64(a.recallIdle(l, most))
	}
}

// recallIfOver recalls idle credit of a lease if a budget above it exceeds its limit, and opens the words below that budget again if that
// is enough. Without reopening, its cost is the depth of the budget tree.
func (a *Arbiter) recallIfOver(now time.Time, l *lease) {
	if len(a.exceeded) == 0 {
		return
	}
	for b := range l.Budget().Chain() {
		p := account{b, l.device.Index}
		if _, over := a.exceeded[p]; over {
			if b.Over(p.device) {
				a.recallExcess(l, p)
			}
			a.reopen(now, p)
		}
	}
}

// reopen opens the credit words below a budget that no longer exceeds its limit. It records an event if the budget newly exceeds its limit,
// or no longer does.
func (a *Arbiter) reopen(now time.Time, p account) {
	announced, known := a.exceeded[p]
	if !known {
		return
	}
	if p.budget.Over(p.device) {
		if !announced {
			a.exceeded[p] = true
			a.overEvent(now, p, EventOver)
		}
		return
	}
	delete(a.exceeded, p)
	if announced {
		a.overEvent(now, p, EventWithin)
	}
	for l := range owners(p.budget.Leases(p.device)) {
		if l.closed && l.session.alive() && !l.lost && !l.Over() {
			l.closed = false
			a.updateFlags(l)
		}
	}
}

// reopenAll calls reopen for each budget that no longer exceeds its limit. Bytes may have been released without a call of recallOver.
func (a *Arbiter) reopenAll(now time.Time) {
	for p := range a.exceeded {
		if !p.budget.Over(p.device) {
			a.reopen(now, p)
		}
	}
}

// overEvent records the event that a budget exceeds its limit (EventOver), or no longer does (EventWithin).
func (a *Arbiter) overEvent(now time.Time, p account, kind Kind) {
	sums := p.budget.Account(p.device)
	e := Event{Time: now, Kind: kind, Device: p.device, Limit: sums.Limit, Bytes: sums.Held}
	whose := ""
	switch owner := p.budget.Owner.(type) {
	case *session:
		e.about(owner.process)
		e.in(owner.job)
		whose = owner.name()
	case *job:
		e.UID, e.User, whose = owner.request.Process.UID, owner.request.Process.User, wording.Job(uint64(owner.id), "", "")
		e.in(owner)
	case *shared:
		if whose = owner.describe(); owner.limit != nil && !owner.ofCgroup() {
			e.UID, e.User, whose = uint32(owner.limit.Of.ID), owner.limit.User, owner.ownerName
		}
	}
	if e.Text = fmt.Sprintf(wording.Within, whose, sums.Limit.Human(), a.device(p.device)); kind == EventOver {
		e.Text = fmt.Sprintf(wording.Over, whose, sums.Held.Human(), a.device(p.device), sums.Limit.Human())
	}
	a.event(e)
}
