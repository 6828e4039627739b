package arbiter

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file computes the limits of jobs, sessions and shared budgets that are in force on a device, from rules, requests and live limits.
// renew.go writes them to the ledger.

// inForce returns the limits of m that are in force on a device. Without keeps, nothing is reserved now and Min is 0.
func inForce(m rules.Memory, d *device, keeps bool) accounting.Limits {
	if !keeps {
		m.Min = 0
	}
	m.Min = min(m.Min, d.Total)
	return m.Limits
}

// limits returns a job's own limits in force on a device.
func (j *job) limits(d *device) accounting.Limits {
	l := inForce(j.Memory(d.bounds()), d, !j.pending && !j.released && !j.ended && j.reservesOn(d))
	l.Min = max(l.Min, j.keepsFor(d))
	return l
}

// limits returns a session's own limits in force on a device.
func (s *session) limits(d *device) accounting.Limits {
	return inForce(s.Memory(d.bounds()), d, !s.pending && s.job.uses(d) && !slices.Contains(s.hidden, d))
}

// memory returns the limits of a shared budget on a device, and the settings that they come from.
func (s *shared) memory(d *device) rules.Memory {
	if s.limit != nil {
		return s.limit.Memory(d.bounds())
	}
	m := s.rule.Memory(d.bounds())
	if d.IsGPU() && s.rule.Devices.Has(d.Device) && !slices.Contains(s.hidden, d) { // memory.min reserves memory of GPUs only
		m.Min, m.MinBy = d.bounds().Amount(s.rule.Min), s.rule.Name+", shared"
	}
	return m
}

// limits returns a shared budget's limits on a device.
func (s *shared) limits(d *device) accounting.Limits { return s.memory(d).Limits }

// describeLimit returns the budget with its limit on a device as part of a sentence: "user bob's 1 GiB budget".
func (s *shared) describeLimit(d *device, limit accounting.Bytes) string {
	if s.limit != nil {
		return fmt.Sprintf(wording.SetLimit, limit.Human(), cmp.Or(s.memory(d).MaxBy, "somebody"), s.ownerName)
	}
	if s.key.scope == rules.ScopeRule {
		return fmt.Sprintf(wording.SharedLimit, limit.Human(), s.ownerName)
	}
	return fmt.Sprintf(wording.BudgetLimit, s.ownerName, limit.Human())
}

// reserves returns how many bytes a job or session reserves on a device when it starts, and for which budget.
func (t *ticket) reserves(d *device) (accounting.Bytes, *accounting.Budget) {
	j, s := t.job, t.session
	switch {
	case t.kind == wantsReturn, j.returnsOnStart() && t.opens():
		return j.wantsBack(d), j.budget
	case s == nil && slices.Contains(j.hidden, d):
		return 0, j.budget
	case s != nil && slices.Contains(s.hidden, d):
		return 0, s.budget
	}
	if t.kind == wantsJob || j.pending {
		l := j.Memory(d.bounds())
		if s == nil && j.request.NoWait && l.Min == 0 { // the job must not start without room for what the rule reserves for its processes
			l = j.newProcess().Memory(d.bounds())
		}
		if l.Least() > 0 || s == nil {
			return l.Least(), j.budget
		}
	}
	return s.Memory(d.bounds()).Least(), s.budget
}

// limiter returns the budget above a lease with the smallest memory.max.
func (l *lease) limiter() *accounting.Budget {
	least := l.Budget()
	for b := range least.Chain() {
		if b.Limits(l.device.Index).Max < least.Limits(l.device.Index).Max {
			least = b
		}
	}
	return least
}

// limitAt returns the name of a limit above a lease: the limit of a budget, or of the device if b is nil.
func (l *lease) limitAt(b *accounting.Budget, most accounting.Bytes) string {
	j := l.session.job
	sh := sharedOf(b)
	switch {
	case b == nil:
		return fmt.Sprintf(wording.DeviceLimit, most.Human())
	case sh != nil:
		return sh.describeLimit(l.device, most)
	case b == l.session.budget || !j.run && b == j.budget:
		return fmt.Sprintf(wording.ProcessLimit, most.Human())
	}
	return j.limitAt(b, most)
}

// limitAt returns the name of the limit of a job's budget, or of a job around it.
func (j *job) limitAt(b *accounting.Budget, most accounting.Bytes) string {
	if b != nil {
		if in, ok := b.Owner.(*job); ok && in != j {
			return fmt.Sprintf(wording.AroundLimit, most.Human(), in.name())
		}
	}
	return fmt.Sprintf(wording.JobLimit, most.Human())
}
