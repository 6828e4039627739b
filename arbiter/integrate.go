package arbiter

import (
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/usage"
)

// This file counts what jobs hold over time, for the history. Each change of a lease's usage or of a job's reservation marks the meter of
// the job on that device. The daemon calls MeasureUsage whenever it releases its lock. So an event costs only the work on the meters that
// it has changed. lease.go reads what a lease uses, and accounts.go gives the sums to the daemon.

// MeasureUsage brings the meters up to date whose amounts have changed since its last call: the time until now counts with the old amounts,
// and the time from now on with the new ones. It reports whether there were such meters.
func (a *Arbiter) MeasureUsage(now time.Time) (changed bool) {
	changed = len(a.usesChanged) > 0
	for _, u := range a.usesChanged {
		u.meter.Measure(now)
		u.changed = false
	}
	a.usesChanged = a.usesChanged[:0]
	return changed
}

// markUsage puts the usage of a device by a job on the list for the next MeasureUsage.
func (a *Arbiter) markUsage(j *job, u *jobUse) {
	j.untold = true
	if !u.changed {
		u.changed = true
		a.usesChanged = append(a.usesChanged, u)
	}
}

// countUsage puts what a lease used at its last readUsage into the meter of its job. A lease of an ended process counts as nothing: its
// memory drains, and the job does not hold it any more.
func (a *Arbiter) countUsage(l *lease) {
	var is usage.Amounts
	if l.session.alive() && !l.lost {
		is = usage.Amounts{Held: l.lastUsed, Granted: l.Granted()}
	}
	if is == l.metered {
		return
	}
	u := l.session.job.useOf(l.device)
	u.meter.Now.Held += is.Held - l.metered.Held
	u.meter.Now.Granted += is.Granted - l.metered.Granted
	l.metered = is
	a.markUsage(l.session.job, u)
	if l.session.alive() {
		u.meter.Sampled(a.lookedAt) // for a grant, grant calls Exact after this
	} else {
		u.meter.Exact()
	}
}

// countReservation notes that the reservation of a job may have changed on a device. b is the budget of the job, or of one of its processes.
func (a *Arbiter) countReservation(b *accounting.Budget, d *device) {
	var j *job
	switch owner := b.Owner.(type) {
	case *job:
		j = owner
	case *session:
		j = owner.job
	}
	if j == nil || j.budget == nil {
		return
	}
	is := j.budget.Reserved(d.Index)
	if is == 0 && !j.hasUseOf(d) {
		return
	}
	if u := j.useOf(d); u.meter.Now.Reserved != is {
		u.meter.Now.Reserved = is
		a.markUsage(j, u)
	}
}

// hasUseOf reports whether there is a usage of a device by the job.
func (j *job) hasUseOf(d *device) bool {
	return slices.ContainsFunc(j.used, func(u *jobUse) bool { return u.device == d })
}

// update replaces the usage of one lease in a sum: was before, now at present, and at most high in between.
func (p *peak) update(was, now, high accounting.Bytes) {
	p.max = max(p.max, p.used-was+high)
	p.used += now - was
}

// useOf returns the usage of a device by a job. It makes an empty one if there is none.
func (j *job) useOf(d *device) *jobUse {
	for _, u := range j.used {
		if u.device == d {
			return u
		}
	}
	u := &jobUse{device: d}
	j.used = append(j.used, u)
	return u
}
