package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// A program can only use what is reserved for it when it has a context, which takes memory
// of the device as well. So a reservation comes with headroom for one context: what a context
// is known to cost there, beside memory.min and like all overhead at the device's expense.
// A context that it was kept for neither waits nor is refused. With charge_overhead contexts
// come out of the budgets, and of what is reserved there: then there is no headroom.

// headroom is what a budget with a reservation on a device keeps for a context there.
type headroom struct {
	bytes accounting.Bytes
	taken accounting.Bytes // what the leases below cost, this context or more
}

// left is the part of it that the capacity still lacks for it alone.
func (h *headroom) left() accounting.Bytes { return h.bytes.Less(h.taken) }

// setHeadroom has a headroom be of so many bytes, of which so many are taken, and the device's sum follow.
func (d *device) setHeadroom(h *headroom, bytes, taken accounting.Bytes) {
	d.headroom = d.headroom.Less(h.left())
	h.bytes, h.taken = bytes, taken
	d.headroom = d.headroom.Plus(h.left())
}

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

// headroomOf is what a lease's contexts have headroom in: its process's, or its job's, or nil.
func (l *lease) headroomOf() *headroom {
	d := l.device
	if len(d.headrooms) == 0 {
		return nil
	}
	if h := d.headrooms[l.session.budget]; h != nil {
		return h
	}
	return d.headrooms[l.session.job.budget]
}

// headroomFor is by how much the capacity falls when a budget comes to reserve least bytes.
func (a *Arbiter) headroomFor(b *accounting.Budget, d *device, least accounting.Bytes) accounting.Bytes {
	if _, shared := b.Owner.(*shared); least == 0 || shared || d.headrooms[b] != nil {
		return 0
	}
	return d.headroomCost().Less(costBelow(b, d))
}

// checkMin tells whether a budget can come to reserve least bytes on a device, with what that
// keeps for a context: nil, or the limit that has no room for it.
func (a *Arbiter) checkMin(b *accounting.Budget, d *device, least accounting.Bytes) *accounting.Refusal {
	return a.ledger.CheckMin(b, d.Index, least, a.headroomFor(b, d, least))
}

// costBelow is what the leases below a budget cost beyond their bytes.
func costBelow(b *accounting.Budget, d *device) (sum accounting.Bytes) {
	for l := range owners(b.Leases(d.Index)) {
		sum = sum.Plus(l.free())
	}
	return sum
}

// keepHeadroom makes the headroom of a budget that reserves least bytes on a device now, or
// gives back that of one that reserves nothing any more.
func (a *Arbiter) keepHeadroom(b *accounting.Budget, d *device, least accounting.Bytes) {
	var j *job
	switch owner := b.Owner.(type) {
	case *job:
		j = owner
	case *session:
		j = owner.job
	default: // what several jobs share is not one program's
		return
	}
	h := d.headrooms[b]
	switch {
	case least == 0 && h != nil:
		d.setHeadroom(h, 0, 0)
		delete(d.headrooms, b)
	case least > 0 && h == nil && d.headroomCost() > 0:
		h = &headroom{}
		d.setHeadroom(h, d.headroomCost(), 0)
		d.headrooms[b] = h
	default:
		return
	}
	j.countHeadrooms(d)
	a.setCapacity(d)
}

// keepHeadrooms gives each reservation its headroom: contexts are no longer charged to it.
func (a *Arbiter) keepHeadrooms(now time.Time) {
	keep := func(b *accounting.Budget) {
		for _, d := range a.devices {
			if least := b.Limits(d.Index).Least(); least > 0 {
				a.keepHeadroom(b, d, least)
			}
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

// countHeadrooms adds up a job's headrooms anew, after one came or went. What a process costs
// counts against its own headroom where it has one, else against its job's.
func (j *job) countHeadrooms(d *device) {
	if h := d.headrooms[j.budget]; h != nil {
		d.setHeadroom(h, h.bytes, 0)
	}
	for _, s := range j.sessions {
		if h := d.headrooms[s.budget]; h != nil {
			d.setHeadroom(h, h.bytes, 0)
		}
	}
	for l := range j.leasesOn(d) {
		if h := l.headroomOf(); h != nil {
			d.setHeadroom(h, h.bytes, h.taken.Plus(l.free()))
		}
	}
}

// sumOverheads adds up anew what the leases on a device cost it, and what headrooms lack.
func (a *Arbiter) sumOverheads(d *device) {
	d.overhead, d.headroom = 0, 0
	for _, h := range d.headrooms {
		h.taken = 0
	}
	for l := range a.leasesOn(d) {
		d.overhead = d.overhead.Plus(l.free())
		if h := l.headroomOf(); h != nil {
			h.taken = h.taken.Plus(l.free())
		}
	}
	for _, h := range d.headrooms {
		d.headroom = d.headroom.Plus(h.left())
	}
}

// recharge has the sums of a device follow what a lease costs it, which was before and is now.
func (l *lease) recharge(before, now accounting.Bytes) {
	d := l.device
	d.overhead = d.overhead.Less(before).Plus(now)
	if h := l.headroomOf(); h != nil {
		d.setHeadroom(h, h.bytes, h.taken.Less(before).Plus(now))
	}
}

// trimHeadroom lowers the headroom to the known cost of a context, after the context that it
// was kept for was measured.
func (l *lease) trimHeadroom() {
	h, d := l.headroomOf(), l.device
	if h != nil && l.beyond.Proven() && l.contexts > 0 && l.beyond.Overhead > 0 {
		d.setHeadroom(h, min(h.bytes, d.contextCost()), h.taken)
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
func (l *lease) offered() accounting.Bytes {
	if l.isOffered() {
		return l.headroomOf().left()
	}
	return 0
}

// isOffered reports whether headroom is there for the next context of a lease: as long as no
// process of the job has made the one that it is kept for.
func (l *lease) isOffered() bool {
	h := l.headroomOf()
	return h != nil && !l.session.job.hasContext(l.device, h)
}

// isFurther reports whether a ticket wants a context beyond the one that headroom was kept for.
func (a *Arbiter) isFurther(t *ticket) bool {
	return t.kind == WantsContexts && t.lease.headroomOf() != nil && !t.lease.isOffered()
}

// hasContext reports whether a process of a job has a context that headroom was kept for.
func (j *job) hasContext(d *device, h *headroom) bool {
	for l := range j.leasesOn(d) {
		if l.contexts > 0 && !l.lost && l.session.alive() && l.headroomOf() == h {
			return true
		}
	}
	return false
}

// beside is what a job's living processes cost a device beyond their bytes, or what is kept
// for their contexts.
func (j *job) beside(d *device) (sum accounting.Bytes) {
	for _, s := range j.sessions {
		if l := s.leaseOn(d); l != nil && s.alive() {
			sum = sum.Plus(l.free())
		}
		if h := d.headrooms[s.budget]; h != nil && s.alive() {
			sum = sum.Plus(h.left())
		}
	}
	if h := d.headrooms[j.budget]; h != nil {
		sum = sum.Plus(h.left())
	}
	return sum
}
