package arbiter

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file puts jobs inside jobs of cgroups. The budget of a job inside another lies below the budget of that job in the ledger, so that
// limits and reservations nest. jobs.go and open.go call this file, and end.go when the job around others ends.

// putInside puts a job that holds nothing yet inside another. It ignores nil.
func (j *job) putInside(ledger *accounting.Ledger, in *job) {
	if in == nil {
		return
	}
	j.around, j.Around = in, &in.Job
	in.inside = append(in.inside, j)
	if err := ledger.MoveBudget(j.budget, in.budget); err != nil {
		panic("arbiter: " + err.Error()) // the budget is new, so that it is not above the other one
	}
}

// moveInside moves a job, with everything below it, inside another; nil: inside none.
func (a *Arbiter) moveInside(now time.Time, j, in *job) {
	if old := j.around; old != nil {
		old.inside = slices.DeleteFunc(old.inside, func(x *job) bool { return x == j })
	}
	a.moveTo(j.budget, &j.shared, nil, a.ledger.MoveBudget)
	j.around, j.Around = in, nil
	var up *accounting.Budget
	if in != nil {
		j.Around, up = &in.Job, in.budget
		in.inside = append(in.inside, j)
	}
	if err := a.ledger.MoveBudget(j.budget, up); err != nil {
		panic("arbiter: " + err.Error()) // the daemon moves a job only into one that is around it
	}
	a.changed()
	a.link(j)
	_, _ = a.setLimits(a.jobChanges(nil, j), false)
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

// leaveInside moves the jobs inside a job that ends to the job around it.
func (a *Arbiter) leaveInside(now time.Time, j *job) {
	for _, in := range slices.Clone(j.inside) {
		a.moveInside(now, in, j.around)
	}
	if j.around != nil {
		j.around.inside = slices.DeleteFunc(j.around.inside, func(x *job) bool { return x == j })
	}
}

// limitsDevices reports whether the jobs inside j may use only j's devices. It returns false for nil.
func (j *job) limitsDevices() bool {
	for ; j != nil; j = j.around {
		if j.devices != nil {
			return true
		}
	}
	return false
}

// only returns those of the devices that the jobs in and around it may use. It returns an error if the request names another one.
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

// usesAround reports whether a job, and each job around it, may use a device.
func (j *job) usesAround(d *device) bool {
	for ; j != nil; j = j.around {
		if !j.uses(d) {
			return false
		}
	}
	return true
}
