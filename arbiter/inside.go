package arbiter

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file puts jobs inside jobs of cgroups (bindings). In the ledger, the budget of the inner job is then a child of the budget of the
// outer job: what the inner job uses and reserves counts in both.
//
// A new job is put inside by open.go, and an open job by jobs.go, when a binding is opened around it. When an outer job ends, end.go moves
// the inner jobs out. A copy of the arbiter has its jobs put inside by copy.go.

// putInside puts j, a new job that holds nothing yet, inside the job in. It does nothing if in is nil.
func (j *job) putInside(ledger *accounting.Ledger, in *job) {
	if in == nil {
		return
	}
	j.around, j.Around = in, &in.Job
	in.inside = append(in.inside, j)
	if err := ledger.MoveBudget(j.budget, in.budget); err != nil {
		panic("arbiter: " + err.Error()) // cannot happen: the budget of j is new, so that no budget lies below it
	}
}

// moveInside moves j, and all jobs inside it, into the job in; nil: out of all jobs. It first removes the budget of j from the budget that
// j shares by its rule, and then makes it a child of in's budget. If in is nil, link puts the budget of j into the shared budget of its
// rule again. At the end moveInside publishes the new limits, and recalls unused credit if a budget around j is exceeded.
func (a *Arbiter) moveInside(now time.Time, j, in *job) {
	if old := j.around; old != nil {
		old.inside = slices.DeleteFunc(old.inside, func(x *job) bool { return x == j })
	}
	j.moveUse(in)
	a.moveTo(j.budget, &j.shared, nil, a.ledger.MoveBudget)
	j.around, j.Around = in, nil
	var up *accounting.Budget
	if in != nil {
		j.Around, up = &in.Job, in.budget
		in.inside = append(in.inside, j)
	}
	if err := a.ledger.MoveBudget(j.budget, up); err != nil {
		panic("arbiter: " + err.Error()) // cannot happen: the daemon never moves a job into a job inside it
	}
	a.changed()
	a.link(j)
	_, _ = a.setLimits(a.jobChanges(nil, j), false)
	a.moveContexts(now, j)
	for s := range j.clients {
		for _, l := range s.leases {
			a.renewLease(s, l, true)
		}
	}
	for b := range j.budget.Chain() {
		for _, d := range a.devices {
			a.enforce(now, b, d.Index)
		}
	}
}

// moveContexts charges the contexts of j, and of the jobs inside it, again. The jobs now around them decide whether contexts count in
// budgets or against the device alone. moveContexts also computes again the headroom for contexts that their reservations keep.
func (a *Arbiter) moveContexts(now time.Time, j *job) {
	reserve := func(b *accounting.Budget) {
		for _, d := range a.devices {
			_ = a.ledger.ReserveOverhead(b, d.Index, d.headroomFor(b, b.Limits(d.Index).Least())) // cannot fail: the device exists
		}
	}
	reserve(j.budget)
	for _, s := range j.sessions {
		reserve(s.budget)
		for _, l := range s.leases {
			a.charge(now, l)
			l.SetOverhead(l.uncharged())
		}
	}
	for _, in := range j.inside {
		a.moveContexts(now, in)
	}
	for _, d := range a.devices {
		a.updateCapacity(now, d)
	}
}

// moveUse subtracts what j and the jobs inside it use from the sums of the jobs around j. It adds the same to the sums of in, unless in is
// nil, and of the jobs around in. The jobs around j keep the peaks that they had.
func (j *job) moveUse(in *job) {
	for _, u := range j.used {
		used, overhead, assumed := u.whole.used.used, u.whole.overhead.used, u.whole.assumed.used
		for x := j.around; x != nil; x = x.around {
			w := &x.useOf(u.device).whole
			w.used.used, w.overhead.used, w.assumed.used = w.used.used-used, w.overhead.used-overhead, w.assumed.used-assumed
		}
		for x := in; x != nil; x = x.around {
			w := &x.useOf(u.device).whole
			w.used.update(0, used, used)
			w.overhead.update(0, overhead, overhead)
			w.assumed.update(0, assumed, assumed)
		}
	}
}

// leaveInside moves the jobs inside j, which ends, into the job around j, or out of all jobs if there is none.
func (a *Arbiter) leaveInside(now time.Time, j *job) {
	for _, in := range slices.Clone(j.inside) {
		a.moveInside(now, in, j.around)
	}
	if j.around != nil {
		j.around.inside = slices.DeleteFunc(j.around.inside, func(x *job) bool { return x == j })
	}
}

// limitsDevices reports whether j, or a job around j, was opened for some devices only. It returns false if j is nil.
func (j *job) limitsDevices() bool {
	for ; j != nil; j = j.around {
		if j.devices != nil {
			return true
		}
	}
	return false
}

// only returns the devices of from that j, and each job around j, may use. It returns an error if r asks for another device by its
// number, unless r leaves the choice among its devices to the arbiter (Emptiest).
func (j *job) only(r JobRequest, from []*device) (fit []*device, err error) {
	for _, d := range from {
		switch {
		case j.usesAround(d):
			fit = append(fit, d)
		case slices.Contains(r.Devices, d.Index) && !r.Emptiest:
			return nil, &Result{Reason: ReasonDenied, Explain: fmt.Sprintf(wording.InsideJob, j.name(), fmt.Sprintf(wording.InsideDevice, d))}
		}
	}
	return fit, nil
}

// usesAround reports whether j, and each job around j, may use a device. It returns true if j is nil.
func (j *job) usesAround(d *device) bool {
	for ; j != nil; j = j.around {
		if !j.uses(d) {
			return false
		}
	}
	return true
}
