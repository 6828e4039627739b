package arbiter

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file puts limits in force that are below what is held: it closes the credit words below a budget that is over its limit, takes idle credit
// back, and opens the words again when the budget is within. renew.go, charge.go and the cycle call it.

// noteOver remembers that a budget is over. The words are told later.
func (a *Arbiter) noteOver(p account) {
	if _, known := a.overs[p]; !known && p.budget.Over(p.device) {
		a.overs[p] = false
	}
}

// noteChain does so for every budget above a lease.
func (a *Arbiter) noteChain(l *lease) {
	for b := range l.Budget().Chain() {
		a.noteOver(account{b, l.device.Index})
	}
}

// enforce puts a budget's limit in force after it, or what is held, has changed:
// where it is over, words are closed and idle credit is taken back.
func (a *Arbiter) enforce(now time.Time, b *accounting.Budget, device int) {
	p := account{b, device}
	a.noteOver(p)
	if _, over := a.overs[p]; over {
		a.recallOver(now, p)
	}
}

// recallOver takes idle credit back at a budget that holds more than its limit, and
// opens the words below it again when that suffices. Every word is closed before
// any is read: what is freed in between then reports itself.
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

// closeWord closes a lease's word.
func (a *Arbiter) closeWord(l *lease) {
	if l.closed || l.lost || !l.session.alive() {
		return
	}
	l.closed = true
	a.updateFlags(l)
}

// recallExcess takes back what a lease has idle, up to what the budget holds too much.
func (a *Arbiter) recallExcess(l *lease, p account) {
	sums := p.budget.Account(p.device)
	if most := min(a.idle(l), sums.Held.Less(sums.Limit)); most > 0 {
		a.stats.RecalledBytes += uint64(a.recallIdle(l, most))
	}
}

// recallIfOver takes back what a lease has idle where a budget above it is over, and
// opens the words again where that suffices. Its cost is the depth of the tree, but
// for the reopening.
func (a *Arbiter) recallIfOver(now time.Time, l *lease) {
	if len(a.overs) == 0 {
		return
	}
	for b := range l.Budget().Chain() {
		p := account{b, l.device.Index}
		if _, over := a.overs[p]; over {
			if b.Over(p.device) {
				a.recallExcess(l, p)
			}
			a.reopen(now, p)
		}
	}
}

// reopen opens the words below a budget again if it is over no longer, and
// announces what has become of it.
func (a *Arbiter) reopen(now time.Time, p account) {
	announced, known := a.overs[p]
	if !known {
		return
	}
	if p.budget.Over(p.device) {
		if !announced {
			a.overs[p] = true
			a.overEvent(now, p, EventOver)
		}
		return
	}
	delete(a.overs, p)
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

// reopenAll reopens what is over no longer, after bytes went back by another way.
func (a *Arbiter) reopenAll(now time.Time) {
	for p := range a.overs {
		if !p.budget.Over(p.device) {
			a.reopen(now, p)
		}
	}
}

// overEvent announces that a budget has become over, or is within again.
func (a *Arbiter) overEvent(now time.Time, p account, kind Kind) {
	sums := p.budget.Account(p.device)
	e := Event{Time: now, Kind: kind, Device: p.device, Limit: sums.Limit, Bytes: sums.Held}
	whose := ""
	switch owner := p.budget.Owner.(type) {
	case *session:
		e.about(&owner.process)
		e.in(owner.job)
		whose = owner.name()
	case *job:
		e.UID, e.User, whose = owner.request.Process.UID, owner.request.Process.User, wording.Job(uint64(owner.id), "", "")
		e.in(owner)
	case *shared:
		if whose = owner.describe(); owner.limit != nil && !owner.ofCgroup() {
			e.UID, e.User, whose = uint32(owner.limit.Of.ID), owner.limit.User, owner.who
		}
	}
	if e.Text = fmt.Sprintf(wording.Within, whose, sums.Limit.Human(), a.device(p.device)); kind == EventOver {
		e.Text = fmt.Sprintf(wording.Over, whose, sums.Held.Human(), a.device(p.device), sums.Limit.Human())
	}
	a.event(e)
}
