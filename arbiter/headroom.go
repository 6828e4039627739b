package arbiter

import (
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// A program can only use what is reserved for it when it has a context, which takes memory
// of the device as well. So a reservation comes with headroom for one context: what a context
// is known to cost there, beside memory.min and like all overhead at the device's expense.
// A context that it was kept for neither waits nor is refused. With charge_overhead contexts
// come out of the budgets, and of what is reserved there: then there is no headroom.

// headroomCost is what a reservation on a device keeps for a context. Where nothing is known
// of what one costs, something is assumed: two jobs that begin at the same time must not both
// be promised the memory that their contexts will take.
func (d *device) headroomCost() accounting.Bytes {
	if d.policy.ChargeOverhead {
		return 0
	}
	if cost := d.contextCost(); cost > 0 || d.rule.ContextReserve != nil {
		return cost
	}
	if !d.IsGPU() {
		return 0
	}
	return min(d.policy.ContextGuess.Of(d.Total), d.mostContext())
}

// mostMin is the most that can be reserved there at all, with a context beside it.
func (d *device) mostMin() accounting.Bytes { return d.grantable().Less(d.headroomCost()) }

// bounds is what limits there can be about.
func (d *device) bounds() rules.Bounds {
	return rules.Bounds{Device: d.Index, Processor: !d.IsGPU(), Total: d.Total, Reservable: d.mostMin()}
}

// headroomOf returns the budget with headroom that a lease's contexts take up: its process's, or its job's; nil: there is none.
func (l *lease) headroomOf() *accounting.Budget {
	for _, b := range [...]*accounting.Budget{l.session.budget, l.session.job.budget} {
		if all, _ := b.Kept(l.device.Index); all > 0 {
			return b
		}
	}
	return nil
}

// headroomFor returns the headroom that a budget has when it comes to reserve least bytes on a device. A budget that several jobs share has
// none, because it is not one program's.
func (d *device) headroomFor(b *accounting.Budget, least accounting.Bytes) accounting.Bytes {
	if _, shared := b.Owner.(*shared); least == 0 || shared {
		return 0
	}
	if all, _ := b.Kept(d.Index); all > 0 {
		return all
	}
	return d.headroomCost()
}

// checkMin tells whether a budget can come to reserve least bytes on a device, with what that
// keeps for a context: nil, or the limit that has no room for it.
func (a *Arbiter) checkMin(b *accounting.Budget, d *device, least accounting.Bytes) *accounting.Refusal {
	return a.ledger.CheckMin(b, d.Index, least, d.headroomFor(b, least))
}

// keepHeadrooms gives each reservation the headroom that it has under a new policy: none if contexts are charged to it.
func (a *Arbiter) keepHeadrooms(now time.Time) {
	keep := func(b *accounting.Budget) {
		for _, d := range a.devices {
			_ = a.ledger.KeepBeside(b, d.Index, 0) // it is there
			_ = a.ledger.KeepBeside(b, d.Index, d.headroomFor(b, b.Limits(d.Index).Least()))
		}
	}
	for _, s := range a.sessions {
		keep(s.budget)
	}
	for _, j := range a.jobs {
		keep(j.budget)
	}
	for _, d := range a.devices {
		a.recap(now, d)
	}
}

// trimHeadroom lowers the headroom to the known cost of a context, after the context that it
// was kept for was measured.
func (a *Arbiter) trimHeadroom(l *lease) {
	if b := l.headroomOf(); b != nil && l.beyond.Proven() && l.contexts > 0 && l.beyond.Overhead > 0 {
		all, _ := b.Kept(l.device.Index)
		_ = a.ledger.KeepBeside(b, l.device.Index, min(all, l.device.contextCost())) // it is there
	}
}

// contextsNeed is what n new contexts of a lease have to be granted. A context that headroom is
// kept for needs nothing, and contexts that are gone have left their place.
func (l *lease) contextsNeed(n int) accounting.Bytes {
	if l.isOffered() {
		n--
	}
	return l.device.contextCost().Times(uint64(n)).Less(l.beyond.Vacated())
}

// offered is what of its headroom the next context of a lease comes to have.
func (l *lease) offered() (left accounting.Bytes) {
	if l.isOffered() {
		_, left = l.headroomOf().Kept(l.device.Index)
	}
	return left
}

// isOffered reports whether headroom is there for the next context of a lease: as long as no process that the headroom is for has made the
// context that it is kept for. A job's headroom is for its processes, and lies idle only if none of them has its own within that.
func (l *lease) isOffered() bool {
	b, j := l.headroomOf(), l.session.job
	if b == nil {
		return false
	}
	return !slices.ContainsFunc(j.sessions, func(s *session) bool {
		if !s.alive() || b != j.budget && s != l.session {
			return false
		}
		own, _ := s.budget.Kept(l.device.Index)
		x := s.leaseOn(l.device)
		return b == j.budget && own > 0 || x != nil && !x.lost && x.contexts > 0
	})
}

// isFurther reports whether a ticket wants a context beyond the one that headroom was kept for.
func (a *Arbiter) isFurther(t *ticket) bool {
	return t.kind == WantsContexts && t.lease.headroomOf() != nil && !t.lease.isOffered()
}
