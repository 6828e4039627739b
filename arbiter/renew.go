package arbiter

import (
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// This file puts limits in force: those of rules, of jobs' requests, and live limits. After a change, renew computes the limits of the jobs
// and sessions concerned (inforce.go), writes the changed limits to the ledger, and shows them on the clients' lease pages. limits.go,
// policy.go, devices.go and claims.go call it.

// limitChange is a change of the limits of a budget on a device.
type limitChange struct {
	budget *accounting.Budget
	device *device
	limits accounting.Limits // limits to set; in the result of setLimits the limits before the change

	kept accounting.Bytes // headroom before the change, for setLimits to restore it; 0: none
}

// allJobs returns true. It is the argument of renew for all jobs.
func allJobs(*job) bool { return true }

// renew puts rules and live limits in force for the jobs for which under returns true, and for their sessions. If under is nil, these are
// the jobs whose rule or live limits have changed. With admit, a raised memory.min must have room; otherwise renew changes no limits in the
// ledger and returns the refusal. The jobs are then linked to the refused limits, and the caller must link them again.
func (a *Arbiter) renew(now time.Time, under func(*job) bool, admit bool) *accounting.Refusal {
	var jobs []*job
	for _, id := range a.Jobs() { // jobs lie in memory in this order
		if j := a.jobs[id]; under == nil || under(j) {
			jobs = append(jobs, j)
		}
	}
	if admit { // all or nothing
		if refused := a.renewJobs(now, jobs, true, true); refused != nil {
			return refused
		}
	} else {
		for _, j := range jobs { // one job at a time, so that its data is read into the processor's cache once
			a.renewJobs(now, []*job{j}, under != nil, false)
		}
	}
	for p := range a.exceeded {
		a.recallOver(now, p)
	}
	a.changed() // requests may now ask for other amounts, even if no sum has changed
	return nil
}

// renewJobs does the work of renew for some jobs. If all is false, jobs has one element, and renewJobs does nothing if the rule, the live
// limits and the shared budgets of that job are unchanged.
func (a *Arbiter) renewJobs(now time.Time, jobs []*job, all, admit bool) *accounting.Refusal {
	changes := make([]limitChange, 0, 2*len(a.devices)*len(jobs))
	moved := false
	for _, j := range jobs {
		rule, live, user := j.Rule, j.Live, j.UserLimits
		moved = a.link(j) || moved
		if !all && !moved && *rule == *j.Rule && live == j.Live && user == j.UserLimits {
			return nil
		}
		changes = a.jobChanges(changes, j)
		for _, s := range j.sessions {
			if all || moved || s.Follows() || rule.Scope != j.Rule.Scope { // else no limit of the session depends on the rule
				changes = a.sessionChanges(changes, s)
			}
		}
	}
	done, refused := a.setLimits(changes, admit)
	if refused != nil {
		return refused
	}
	for _, c := range done {
		a.enforce(now, c.budget, c.device.Index)
	}
	for _, j := range jobs {
		for _, s := range j.sessions {
			for _, l := range s.leases {
				a.renewLease(s, l, moved)
			}
		}
	}
	return nil
}

// link sets the rule and live limits that a job and its sessions use, and places their budgets below the matching shared budgets. It
// returns true if a budget is now below another shared budget.
func (a *Arbiter) link(j *job) (moved bool) {
	p, shared, up := &j.request.Process, j.shared, j.cap
	j.Rule = a.policy.For(*p)
	j.Live = a.liveLimits(j.limitOwner(), p)
	a.moveTo(j.budget, &j.shared, a.shareFor(j), a.ledger.MoveBudget)
	a.capJob(j)
	if moved = j.shared != shared || j.cap != up; j.shared != shared {
		a.updateHiddenOf(j.shared)
		a.updateHiddenOf(shared)
	}
	for _, s := range j.sessions {
		moved = a.linkSession(s) || moved
	}
	return moved
}

// linkSession does the work of link for a session. The live limits of a process without a runner belong to its job only.
func (a *Arbiter) linkSession(s *session) (moved bool) {
	if s.job.run {
		s.Live = a.liveLimits(s.limitOwner(), s.process)
	}
	return a.capSession(s)
}

// liveLimits returns the live limits of a job or a process, and sets their user.
func (a *Arbiter) liveLimits(of rules.Owner, p *rules.Process) *rules.Limits {
	l := a.limits[of]
	if l != nil {
		l.UID, l.User = p.UID, p.User
	}
	return l
}

// renewLease shows the limits of a lease on the client's page, and opens the credit word if no limit is exceeded any more. moved: the lease
// is below another shared budget than before.
func (a *Arbiter) renewLease(s *session, l *lease, moved bool) {
	if moved {
		a.noteChain(l) // the lease may make the new budget exceed its limit
	}
	l.SetStreamsMax(s.Streams().Max)
	a.renewDelegation(l)
	if l.lost || !s.alive() {
		return
	}
	if l.closed && !l.Over() {
		l.closed = false
		a.updateFlags(l)
	}
	l.word.Limit(l.maxInForce())
	if a.setNotify(l); moved && l.contended() { // a request may be waiting at the new budget
		a.recallAll(l)
	}
}

// jobChanges appends the limit changes of a job's budget and of the shared budgets above it.
func (a *Arbiter) jobChanges(changes []limitChange, j *job) []limitChange {
	for _, d := range a.devices {
		for s := range j.shares {
			l := s.limits(d)
			if j.pending { // the job also waits for this reservation
				l.Min = min(l.Min, s.budget.Limits(d.Index).Min)
			}
			changes = appendChange(changes, s.budget, d, l)
		}
		changes = appendChange(changes, j.budget, d, j.limits(d))
	}
	return changes
}

// sessionChanges appends the limit changes of a session's budget and of the caps above it. An ended session reserves nothing.
func (a *Arbiter) sessionChanges(changes []limitChange, s *session) []limitChange {
	for _, d := range a.devices {
		l := s.limits(d)
		if !s.alive() {
			l.Min = 0
		}
		changes = appendChange(changes, s.budget, d, l)
		for _, c := range s.cgroups {
			changes = appendChange(changes, c.budget, d, c.limits(d))
		}
	}
	return changes
}

// appendChange appends a change if l differs from the limits of a budget on a device.
func appendChange(changes []limitChange, b *accounting.Budget, d *device, l accounting.Limits) []limitChange {
	if l == b.Limits(d.Index) {
		return changes
	}
	return append(changes, limitChange{budget: b, device: d, limits: l})
}

// setLimits writes limits to the ledger, and returns the changes that it made, each with the limits before. With admit, a raised memory.min
// must have room; otherwise setLimits undoes its changes and returns the refusal.
func (a *Arbiter) setLimits(changes []limitChange, admit bool) (done []limitChange, refused *accounting.Refusal) {
	for _, c := range changes {
		old := c.budget.Limits(c.device.Index)
		if old == c.limits {
			continue
		}
		least := c.limits.Least()
		if admit && least > old.Least() {
			refused = a.checkMin(c.budget, c.device, least)
		}
		if refused != nil {
			break
		}
		c.kept, _ = c.budget.ReservedOverhead(c.device.Index)
		a.writeLimits(c, c.device.headroomFor(c.budget, least))
		c.limits = old
		done = append(done, c)
	}
	if refused == nil {
		return done, nil
	}
	for _, c := range slices.Backward(done) {
		a.writeLimits(c, c.kept)
	}
	return nil, refused
}

// writeLimits writes limits, and the headroom of their reservation, to the ledger.
func (a *Arbiter) writeLimits(c limitChange, headroom accounting.Bytes) {
	_ = a.ledger.SetLimits(c.budget, c.device.Index, c.limits) // cannot fail: the device exists
	_ = a.ledger.ReserveOverhead(c.budget, c.device.Index, headroom)
	a.countReservation(c.budget, c.device)
	a.changed()
}
