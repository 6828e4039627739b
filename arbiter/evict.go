package arbiter

import (
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// This file chooses idle jobs that make room for a waiting request, and lets suspended jobs return when nobody waits. tick.go calls it once a
// second. suspend.go asks the chosen jobs.

// makeRoomForWaiting asks idle jobs to give their memory back for the first waiting request of each device, if it has waited for evict.after.
// No job is asked for a device on which one is being asked already, because its answer changes what the request lacks.
func (a *Arbiter) makeRoomForWaiting(now time.Time) {
	if a.policy.EvictAfter <= 0 || len(a.queue) == 0 {
		return
	}
	asked := make(map[*device]bool)
	for _, j := range a.jobs {
		if j.residence() == Suspending {
			for d := range j.suspension.had {
				asked[d] = true
			}
		}
	}
	for _, t := range a.queue {
		first, busy := false, false
		for i := range t.candidates {
			d := t.candidates[i].device
			first, busy = first || !asked[d], busy || asked[d]
		}
		for i := range t.candidates {
			asked[t.candidates[i].device] = true // later requests of these devices are not the first
		}
		if !first || busy || t.absent() || now.Sub(t.place.Since) < a.policy.EvictAfter {
			continue
		}
		for _, j := range a.victims(now, t) {
			a.suspend(now, j, t, nil)
		}
	}
}

// victims returns the jobs to ask for a waiting request: idle jobs in the order of their last use until they suffice, without those that are
// then not needed. nil: all idle jobs together do not suffice, or the request does not lack memory alone.
func (a *Arbiter) victims(now time.Time, t *ticket) []*job {
	var chosen []*job
	enough := func(without int) bool {
		return a.sufficesFor(t, slices.DeleteFunc(slices.Clone(chosen), func(j *job) bool { return without >= 0 && j == chosen[without] }))
	}
	all := a.idleJobs(now, t)
	for !enough(-1) {
		if len(all) == 0 {
			return nil
		}
		chosen, all = append(chosen, all[0]), all[1:]
	}
	for i := len(chosen) - 2; i >= 0; i-- { // the last one was needed
		if enough(i) {
			chosen = slices.Delete(chosen, i, i+1)
		}
	}
	return chosen
}

// idleJobs returns the jobs that may be asked to make room for a request, the longest idle first.
func (a *Arbiter) idleJobs(now time.Time, t *ticket) (all []*job) {
	since := make(map[*job]time.Time)
	for _, id := range a.Jobs() {
		j := a.jobs[id]
		if a.mayBeAsked(now, j, t) {
			idle, _ := a.times(j)
			since[j] = idle
			if now.Sub(idle) >= j.Rule.Evict.IdleAfter {
				all = append(all, j)
			}
		}
	}
	slices.SortStableFunc(all, func(x, y *job) int { return since[x].Compare(since[y]) })
	return all
}

// mayBeAsked reports whether a job may be asked to make room for a request if it is idle.
func (a *Arbiter) mayBeAsked(now time.Time, j *job, t *ticket) bool {
	if !j.Rule.Evict.Evicts() || j.residence() != Resident || len(j.tickets) > 0 || j.pending || j.ended ||
		j.outermost() == t.job.outermost() || j.priority() > t.job.priority() || a.keepsPlace(j) {
		return false
	}
	if unit := j.unit(); j.Rule.Evict.How == rules.EvictByUnit && (unit == "" || a.sharesUnit(j, unit)) {
		return false
	}
	if s := j.suspension; s != nil && (now.Before(s.notUntil) || !s.resumed.IsZero() && now.Sub(s.resumed) < j.Rule.Evict.MinResident) {
		return false
	}
	return slices.ContainsFunc(a.devices, func(d *device) bool { return t.on(d) && a.heldOn(j, d).bytes > 0 })
}

// keepsPlace reports whether a job has a reservation, a claim, or the sole use of a device. It cannot be suspended then.
func (a *Arbiter) keepsPlace(j *job) bool {
	for _, d := range a.devices {
		if j.budget.Limits(d.Index).Least() > 0 {
			return true
		}
		for _, s := range j.sessions {
			if s.alive() && s.budget.Limits(d.Index).Least() > 0 {
				return true
			}
		}
		for o := range d.permits[permit.Claim] {
			if o.Job == j {
				return true
			}
		}
		for o := range d.permits[permit.Sole] {
			if o.Job == j {
				return true
			}
		}
	}
	return false
}

// sufficesFor reports whether a request would have room if the chosen jobs gave their memory back. It is false if the request lacks anything
// but memory, and if it lacks nothing.
func (a *Arbiter) sufficesFor(t *ticket, chosen []*job) bool {
	for i := range t.candidates {
		s := &t.candidates[i]
		lacks := s.lacks(refusingLimit.hasNoRoom)
		ok := lacks && !s.lacks(func(f refusingLimit) bool { return f.noRoom && f.ofPermits() }) && a.makesRoomOn(t, s.device, chosen)
		switch {
		case t.any && ok:
			return true
		case !t.any && lacks && !ok:
			return false
		}
	}
	return !t.any && t.lacks(refusingLimit.hasNoRoom)
}

// makesRoomOn reports whether each limit that refuses a request on a device would have room if the chosen jobs gave their memory back there.
func (a *Arbiter) makesRoomOn(t *ticket, d *device, chosen []*job) bool {
	refusals := func(yield func(*accounting.Refusal) bool) {
		if t.lease != nil {
			a.chargedNode(t).Refusals(t.memory(t.bytes))(yield)
			return
		}
		least, b := t.reserves(d)
		a.ledger.MinRefusals(b, d.Index, least, d.headroomFor(b, least))(yield)
	}
	for r := range refusals {
		var gain accounting.Bytes
		for _, j := range chosen {
			gain = gain.Plus(a.gainAt(r, j, d))
		}
		if gain < r.Short {
			return false
		}
	}
	return true
}

// gainAt returns by how much the sum at a limit falls if a job gives its memory back. A unit that stops gives its contexts back, too.
func (a *Arbiter) gainAt(r *accounting.Refusal, j *job, d *device) (gain accounting.Bytes) {
	for l := range j.leasesOn(d) {
		below := r.Budget == nil
		for b := range l.session.budget.Chain() {
			below = below || b == r.Budget
		}
		if !below {
			continue
		}
		if n := l.Granted().Less(a.idle(l)); n > 0 {
			gain = gain.Plus(r.Yield(&l.Lease, n))
		}
		if r.Budget == nil && j.Rule.Evict.How == rules.EvictByUnit {
			gain = gain.Plus(l.uncharged())
		}
	}
	return gain
}

// returnOnRoom lets suspended jobs whose rule says so return when nobody waits on their devices and there is room. The one that was suspended
// first comes first.
func (a *Arbiter) returnOnRoom(now time.Time) {
	var all []*job
	for _, id := range a.Jobs() {
		if j := a.jobs[id]; j.residence() == Suspended && j.Rule.Evict.Returns() == rules.ReturnOnRoom && a.returning(j) == nil {
			all = append(all, j)
		}
	}
	slices.SortStableFunc(all, func(x, y *job) int { return x.suspension.asked.Compare(y.suspension.asked) })
	for _, j := range all {
		t := a.returnOf(j)
		if slices.ContainsFunc(t.candidates, func(s candidate) bool { return s.device.waiting > 0 }) {
			continue
		}
		a.assignPlace(now, t)
		if v := a.evaluate(t); v.fits != nil || !v.final && a.recallHelps(t) && a.evaluate(t).fits != nil {
			a.serveReturn(now, t)
		}
	}
}
