package arbiter

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// Freed tells that a free saw NOTIFY in the word: while a budget above the lease
// is over, or somebody waits for it, what was freed goes back. If many requests wait, they are judged by a Tick that is due
// within 2 ms, so that many frees cost one cycle. Unknown leases are ignored.
func (a *Arbiter) Freed(now time.Time, id LeaseID) {
	l := a.leases[id]
	if l == nil || !l.session.alive() {
		return
	}
	defer a.cycleSoon(now)
	a.touch(now, l)
	a.settle(now, l)
	a.takeApart(l)
	if l.contended() {
		a.recallAll(l)
	}
	a.left(now, l)
	if l.notify && !l.wanted() {
		l.notify = false
		a.flag(l)
	}
}

// flag shows a lease's flags in its word.
func (a *Arbiter) flag(l *lease) {
	a.keepMark(l)
	a.renewMark(l)
}

// renewMark shows a lease's flags in its word, so that the word's low-water mark restarts and what it showed is forgotten.
func (a *Arbiter) renewMark(l *lease) {
	if l.apart = l.Away() > 0; l.apart {
		l.device.aparts[l] = struct{}{}
	} else {
		delete(l.device.aparts, l)
	}
	closed := l.closed || l.apart
	l.word.Flag(closed, closed || l.notify)
}

// noteAway writes down how many of a lease's bytes are away from its device, and keeps the lease's word closed while there are any. With
// an open word, bytes that the client frees become credit, which it may use again without asking. If these were managed memory that is
// away, the device would have no room for what is allocated in their place.
func (a *Arbiter) noteAway(l *lease) {
	l.word.Away(l.Away())
	if l.apart != (l.Away() > 0) {
		a.flag(l)
	}
}

// takeApart takes back a lease's idle credit while some of the lease's memory is away from the device.
func (a *Arbiter) takeApart(l *lease) {
	if l.Away() > 0 && l.session.alive() {
		a.take(l, a.idle(l))
	}
}

// giveWay makes room on the device for n bytes that a lease asks for: it counts as much of the lease's own managed memory as away as is
// lacking, because the driver moves managed memory out then. The next reading of the device shows how much of it is still there.
func (a *Arbiter) giveWay(l *lease, n accounting.Bytes) {
	if !l.device.IsGPU() || l.spoiled {
		return
	}
	r := l.Check(accounting.Whole(n))
	if r == nil || r.Budget != nil {
		return
	}
	managed := l.word.Told().Managed
	if managed == 0 {
		return
	}
	there := min(managed, l.Granted().Less(a.idle(l))).Less(l.Away())
	if there == 0 {
		return
	}
	l.SetAway(l.Away().Plus(min(there, r.Short)))
	a.noteAway(l)
}

// settle takes back what a lease has idle where a budget above it is over, and
// opens the words again where that suffices. Its cost is the depth of the tree, but
// for the reopening.
func (a *Arbiter) settle(now time.Time, l *lease) {
	if len(a.overs) == 0 {
		return
	}
	for b := range l.Budget().Chain() {
		p := account{b, l.device.Index}
		if _, over := a.overs[p]; over {
			if b.Over(p.device) {
				a.drainWord(l, p)
			}
			a.reopen(now, p)
		}
	}
}

// enforce puts a budget's limit in force after it, or what is held, has changed:
// where it is over, words are closed and idle credit is taken back.
func (a *Arbiter) enforce(now time.Time, b *accounting.Budget, device int) {
	p := account{b, device}
	a.noteOver(p)
	if _, over := a.overs[p]; over {
		a.squeeze(now, p)
	}
}

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

// squeeze takes idle credit back at a budget that holds more than its limit, and
// opens the words below it again when that suffices. Every word is closed before
// any is read: what is freed in between then reports itself.
func (a *Arbiter) squeeze(now time.Time, p account) {
	if p.budget.Over(p.device) {
		leases := slices.Collect(owners(p.budget.Leases(p.device)))
		for _, l := range leases {
			a.shut(l)
		}
		for _, l := range leases {
			a.drainWord(l, p)
		}
	}
	a.reopen(now, p)
}

// shut closes a lease's word.
func (a *Arbiter) shut(l *lease) {
	if l.closed || l.lost || !l.session.alive() {
		return
	}
	l.closed = true
	a.flag(l)
}

// drainWord takes back what a lease has idle, up to what the budget holds too much.
func (a *Arbiter) drainWord(l *lease, p account) {
	sums := p.budget.Account(p.device)
	if most := min(a.idle(l), sums.Held.Less(sums.Limit)); most > 0 {
		a.stats.RecalledBytes += uint64(a.take(l, most))
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
			a.flag(l)
		}
	}
}

// checkAll reopens what is over no longer, after bytes went back by another way.
func (a *Arbiter) checkAll(now time.Time) {
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
		if whose = owner.called(); owner.limit != nil && !owner.ofCgroup() {
			e.UID, e.User, whose = uint32(owner.limit.Of.ID), owner.limit.User, owner.who
		}
	}
	if e.Text = fmt.Sprintf(wording.Within, whose, sums.Limit.Human(), a.device(p.device)); kind == EventOver {
		e.Text = fmt.Sprintf(wording.Over, whose, sums.Held.Human(), a.device(p.device), sums.Limit.Human())
	}
	a.event(e)
}
