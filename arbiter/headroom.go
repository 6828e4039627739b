package arbiter

import (
	"slices"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// This file computes headroom: the memory for one context that is reserved together with a memory.min. A program needs a context to use its
// reserved memory, and the context takes memory of the device as well. Like all overhead, headroom is charged to the device and not to a
// budget. The context that uses the headroom neither waits nor is refused. With charge_overhead, contexts are charged to the budgets and so
// to the reservations; then there is no headroom. evaluate.go, renew.go and serve.go call this file. It also computes what is reserved for a
// suspended job that takes its memory again.

// headroomCost returns the headroom of a new reservation on a device. If the cost of a context is not known there yet, the headroom is a
// guess. Without the guess, two jobs that start at the same time would both be promised the memory that their contexts take.
func (d *device) headroomCost() accounting.Bytes {
	if d.policy.ChargeOverhead {
		return 0
	}
	return d.contextRoom()
}

// mostMin returns the most bytes that one memory.min on a device can reserve, with headroom.
func (d *device) mostMin() accounting.Bytes { return d.grantable().Less(d.headroomCost()) }

// bounds returns the figures of a device that limits are computed from.
func (d *device) bounds() rules.Bounds {
	return rules.Bounds{Device: d.Index, Processor: !d.IsGPU(), Total: d.Total, Reservable: d.mostMin()}
}

// headroomOf returns the budget whose headroom serves the contexts of a lease: that of its process, else that of its job, else that of the
// nearest job around it. nil: none has headroom, or contexts of the lease are charged to its budgets. of is the job of that budget.
func (l *lease) headroomOf() (b *accounting.Budget, of *job) {
	if l.session.job.contextsInside() {
		return nil, nil
	}
	if all, _ := l.session.budget.ReservedOverhead(l.device.Index); all > 0 {
		return l.session.budget, l.session.job
	}
	for j := l.session.job; j != nil; j = j.around {
		if all, _ := j.budget.ReservedOverhead(l.device.Index); all > 0 {
			return j.budget, j
		}
	}
	return nil, nil
}

// headroomFor returns the headroom of a budget that reserves least bytes on a device: its present headroom, else that of a new reservation.
// A shared budget has none, because its reservation does not belong to one program. The budget of a job that is not resident has at least
// the overhead that the job needs to return.
func (d *device) headroomFor(b *accounting.Budget, least accounting.Bytes) accounting.Bytes {
	needs, inside := d.headroomCost(), false // inside: its contexts are charged to the reservation
	all, _ := b.ReservedOverhead(d.Index)
	switch of := b.Owner.(type) {
	case *shared:
		return 0
	case *job:
		if inside = of.contextsInside(); of.residence() != Resident {
			needs = max(all, of.overheadBack(d))
			all = 0
		}
	case *session:
		inside = of.job.contextsInside()
	}
	switch {
	case least == 0 || inside:
		return 0
	case all > 0:
		return all
	}
	return needs
}

// overheadBack returns the overhead that is reserved on a device when a suspended job returns. It is the sum of what its processes take now
// and of the cost of the contexts that they have ended since the job was asked. The result is at least the overhead that the job had at
// that time. It is 0 if the job has all its contexts, or if contexts are charged to the budgets.
func (j *job) overheadBack(d *device) (all accounting.Bytes) {
	n := j.contextsAway(d)
	if n == 0 || d.policy.ChargeOverhead {
		return 0
	}
	for l := range j.leasesOn(d) {
		all = all.Plus(l.uncharged())
	}
	return max(all.Plus(d.headroomCost().Times(uint64(n))), j.suspension.had[d].overhead)
}

// checkMin returns nil if a budget can reserve least bytes with headroom on a device, else the limit that has no room.
func (a *Arbiter) checkMin(b *accounting.Budget, d *device, least accounting.Bytes) *accounting.Refusal {
	return a.ledger.CheckMin(b, d.Index, least, d.headroomFor(b, least))
}

// contextsNeed returns the bytes that must be free before n new contexts of a lease are granted. If the cost of a context is not known,
// there are two cases. While readings have still to show other contexts, each counts with a guess, because these readings will show the
// cost. Otherwise the result is 0, because only the driver can tell whether there is room.
func (a *Arbiter) contextsNeed(l *lease, n int) accounting.Bytes {
	cost := l.device.contextCost()
	if cost == 0 && a.assumed(l.device) > 0 {
		cost = l.device.contextRoom()
	}
	return l.newContexts(n, cost)
}

// newContexts returns what n new contexts of a lease take if each takes cost bytes. It subtracts unused headroom for one context, and the
// bytes of ended contexts of the lease.
func (l *lease) newContexts(n int, cost accounting.Bytes) accounting.Bytes {
	if l.isOffered() {
		n--
	}
	return cost.Times(uint64(n)).Less(l.extra.FreedContexts())
}

// offered returns the bytes of unused headroom for the next context of a lease; 0: none. The headroom of a job that returns is for all the
// contexts that it lacks, so that the next context gets an equal part of it.
func (l *lease) offered() (left accounting.Bytes) {
	if l.isOffered() {
		b, j := l.headroomOf()
		if _, left = b.ReservedOverhead(l.device.Index); j.keepsFor(l.device) > 0 {
			left /= accounting.Bytes(j.contextsAway(l.device))
		}
	}
	return left
}

// isOffered reports whether unused headroom exists for the next context of a lease. The headroom of a process is unused until the process
// has a context on the device. The headroom of a job is unused until one of its processes has a context there or headroom of its own, which
// is part of the job's. Processes of jobs inside count as its own.
func (l *lease) isOffered() bool {
	b, j := l.headroomOf()
	if b != nil && j.keepsFor(l.device) > 0 { // the job returns, and has headroom for the contexts that it lacks
		return b == j.budget && j.contextsAway(l.device) > 0
	}
	if b == nil || b == j.budget && j.headroomInside(l.device.Index) {
		return false
	}
	for s := range j.clients {
		if !s.alive() || b != j.budget && s != l.session {
			continue
		}
		own, _ := s.budget.ReservedOverhead(l.device.Index)
		if x := s.leaseOn(l.device); b == j.budget && own > 0 || x != nil && !x.lost && x.contexts > 0 {
			return false
		}
	}
	return true
}

// headroomInside reports whether a job inside j has headroom of its own on a device, which is part of that of j.
func (j *job) headroomInside(device int) bool {
	return slices.ContainsFunc(j.inside, func(in *job) bool {
		all, _ := in.budget.ReservedOverhead(device)
		return all > 0 || in.headroomInside(device)
	})
}

// headroom returns the headroom of a job and of the jobs inside it on a device. The headroom of the jobs inside is part of the job's own,
// so each byte counts once. If the jobs inside have more than the job itself, headroom returns their sum.
func (j *job) headroom(device int) (all accounting.Bytes) {
	for _, in := range j.inside {
		all = all.Plus(in.headroom(device))
	}
	own, _ := j.budget.ReservedOverhead(device)
	return max(all, own)
}

// isFurther reports whether a ticket asks for another context after the one that used the headroom.
func (a *Arbiter) isFurther(t *ticket) bool {
	if t.kind != WantsContexts {
		return false
	}
	b, _ := t.lease.headroomOf()
	return b != nil && !t.lease.isOffered()
}

// trimHeadroom lowers the headroom for a lease to the known cost of a context, after the context that uses it was measured. The headroom of
// a job that returns is for all its contexts, and stays.
func (a *Arbiter) trimHeadroom(l *lease) {
	if b, of := l.headroomOf(); b != nil && of.keepsFor(l.device) == 0 && l.extra.Confirmed() && l.contexts > 0 && l.extra.Overhead > 0 {
		all, _ := b.ReservedOverhead(l.device.Index)
		_ = a.ledger.ReserveOverhead(b, l.device.Index, min(all, l.device.contextCost())) // cannot fail: the device exists
	}
}

// wantsBack returns the bytes that are reserved on a device when a suspended job returns: what it held, but at most its own limit of now.
func (j *job) wantsBack(d *device) accounting.Bytes {
	return min(j.suspension.had[d].bytes, j.Memory(d.bounds()).Max)
}

// keepsFor returns the bytes that are reserved on a device for a job that is resuming or stuck; 0: the job is in another state.
func (j *job) keepsFor(d *device) accounting.Bytes {
	if r := j.residence(); r != Resuming && r != Stuck {
		return 0
	}
	return j.wantsBack(d)
}
