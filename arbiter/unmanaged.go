package arbiter

import (
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// This file charges the jobs of cgroups (bindings) with the memory of their unmanaged processes. An unmanaged process uses a device
// without a lease. Package arbiter finds such processes in the readings of the device (observe.go).
//
// In the ledger, their bytes count against the budget of the job, within its reservation, and so against the device. Bytes of other
// unmanaged processes reduce the capacity of the device instead. So no byte counts twice. A charge withdraws no grant. It ends with the
// first reading that does not show the process.

// chargesUnmanaged reports whether the memory of the job's unmanaged processes counts against the job's budget. It counts for jobs of
// cgroups alone, because only there the kernel says which processes belong to the job.
func (a *Arbiter) chargesUnmanaged(j *job) bool {
	return a.policy.ChargeUnmanaged && j.request.Cgroup != ""
}

// chargeUnmanaged computes the charge of each job on a device: the sum of the job's unmanaged processes that are marked as charged. It
// changes the charges that differ.
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

// chargeJob sets the charge of one job on a device. If that exceeds the budget of the job, or of a job around it, it recalls the unused
// credit of the programs that belong to that budget.
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
			// A process that has got a lease since the last reading stays without a charge: unchargeUnmanaged has ended the charge.
			isClient := slices.ContainsFunc(d.byPID[u.PID], func(l *lease) bool { return l.session.process.StartTicks == u.StartTicks })
			u.Charged = j != nil && a.chargesUnmanaged(j) && !isClient
		}
		a.chargeUnmanaged(now, d)
	}
}

// unchargeUnmanaged ends the charge for a process that now has a lease on the device, because the lease is charged with what the process
// allocates. Until the next reading, the bytes that it used before count against the device alone.
func (a *Arbiter) unchargeUnmanaged(now time.Time, d *device, p *rules.Process) {
	for i := range d.unmanagedBy {
		if u := &d.unmanagedBy[i]; u.Charged && u.PID == p.PID && u.StartTicks == p.StartTicks {
			u.Charged = false
			a.chargeUnmanaged(now, d)
		}
	}
}

// dropUnmanagedOf ends the charges of a job whose budget was closed, and whose charge the ledger has removed. Its unmanaged processes
// then count against their devices alone.
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

// charged returns how many bytes of unmanaged processes count against the budget of a job on a device. They include the bytes that are
// charged to jobs inside it.
func (j *job) charged(d *device) accounting.Bytes {
	sum := j.budget.Charged(d.Index)
	for _, in := range j.inside {
		sum = sum.Plus(in.charged(d))
	}
	return sum
}

// countsIn reports whether the memory of an unmanaged process counts against a budget: that of its job, or one above that.
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
