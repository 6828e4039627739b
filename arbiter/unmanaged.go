package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// This file charges the jobs of cgroups (bindings) with the memory of their processes that use a device without a lease. observe.go finds
// these processes by readings. In the ledger, such bytes count against the budget of the job, and so against the device. The capacity of the
// device falls only by the other unmanaged bytes. So no byte counts twice, and the bytes are inside the reservation of the job. A charge takes back no grant, and ends with the next reading that does not show the process.

// chargesUnmanaged reports whether memory of the job's processes without a lease counts against the job's budget. For jobs of programs it
// does not, because no limit of the kernel says which processes belong to them.
func (a *Arbiter) chargesUnmanaged(j *job) bool {
	return a.policy.ChargeUnmanaged && j.request.Cgroup != ""
}

// chargeUnmanaged sets the charges of jobs on a device to what the unmanaged processes use that are marked as charged.
func (a *Arbiter) chargeUnmanaged(now time.Time, d *device) {
	sums := make(map[*job]accounting.Bytes)
	for i := range d.unmanagedBy {
		if u := &d.unmanagedBy[i]; u.Charged {
			j := a.jobs[JobID(u.Job)]
			sums[j] = sums[j].Plus(u.Bytes)
		}
	}
	was := d.unmanagedOf
	d.unmanagedOf = sums
	for j := range was {
		if sums[j] == 0 {
			a.chargeJob(now, d, j, 0)
		}
	}
	for j, n := range sums {
		if n != was[j] {
			a.chargeJob(now, d, j, n)
		}
	}
	a.updateCapacity(now, d)
}

// chargeJob sets the charge of one job on a device. If a budget is then exceeded, it recalls idle credit below that budget.
func (a *Arbiter) chargeJob(now time.Time, d *device, j *job, n accounting.Bytes) {
	_ = a.ledger.ChargeBudget(j.budget, d.Index, n) // the device exists
	a.changed()
	for b := range j.budget.Chain() {
		a.enforce(now, b, d.Index)
	}
}

// chargeUnmanagedAgain sets the charges of all jobs after the policy has changed.
func (a *Arbiter) chargeUnmanagedAgain(now time.Time) {
	for _, d := range a.devices {
		for i := range d.unmanagedBy {
			u := &d.unmanagedBy[i]
			j := a.jobs[JobID(u.Job)]
			u.Charged = j != nil && a.chargesUnmanaged(j)
		}
		a.chargeUnmanaged(now, d)
	}
}

// unchargeUnmanaged ends the charge for a process that now has a lease on the device, because its lease is charged with what it allocates.
// Until the next reading, what it used before counts against the device alone.
func (a *Arbiter) unchargeUnmanaged(now time.Time, d *device, p *rules.Process) {
	for i := range d.unmanagedBy {
		if u := &d.unmanagedBy[i]; u.Charged && u.PID == p.PID && u.StartTicks == p.StartTicks {
			u.Charged = false
			a.chargeUnmanaged(now, d)
		}
	}
}

// dropUnmanagedOf ends the charges of a job whose budget was closed. Its unmanaged processes then count against their devices alone.
func (a *Arbiter) dropUnmanagedOf(now time.Time, j *job) {
	for _, d := range a.devices {
		if d.unmanagedOf[j] == 0 {
			continue
		}
		delete(d.unmanagedOf, j)
		for i := range d.unmanagedBy {
			if u := &d.unmanagedBy[i]; JobID(u.Job) == j.id {
				u.Job, u.JobName, u.Charged = 0, "", false
			}
		}
		a.updateCapacity(now, d)
	}
}

// countsIn reports whether the memory of an unmanaged process counts against a budget.
func (a *Arbiter) countsIn(u *figures.UnmanagedState, of *accounting.Budget) bool {
	j := a.jobs[JobID(u.Job)]
	if !u.Charged || j == nil {
		return false
	}
	for b := range j.budget.Chain() {
		if b == of {
			return true
		}
	}
	return false
}
