package arbiter

import (
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// This file puts limits in force: the limits of a rule, of a job's request, and live limits. After a change of any of these, renew computes the
// limits of the jobs and processes below it (inforce.go), writes the changed limits into the ledger, and shows them on the clients' lease pages.

// limitChange is a change of a budget's limits on a device.
type limitChange struct {
	budget *accounting.Budget
	device *device
	limits accounting.Limits // to be set; in the result of setLimits those before the change

	kept accounting.Bytes // headroom before the change; 0: none
}

// allJobs returns true.
func allJobs(*job) bool { return true }

// renew puts the rules and the live limits in force for the jobs for which under returns true, and for their processes. If under is nil, it
// does so for the jobs whose rule or live limits are others than before. With admit, a raised memory.min must have room: else renew changes
// no limits in the ledger and returns the refusal. The jobs are then linked to the refused limits, and the caller must link them again.
func (a *Arbiter) renew(now time.Time, under func(*job) bool, admit bool) *accounting.Refusal {
	var jobs []*job
	for _, id := range a.Jobs() { // in this order they lie in memory
		if j := a.jobs[id]; under == nil || under(j) {
			jobs = append(jobs, j)
		}
	}
	if admit { // all or nothing
		if refused := a.renewJobs(now, jobs, true, true); refused != nil {
			return refused
		}
	} else {
		for _, j := range jobs { // one job at a time, so that the data of each is read into the processor's cache once
			a.renewJobs(now, []*job{j}, under != nil, false)
		}
	}
	for p := range a.overs {
		a.recallOver(now, p)
	}
	a.changed() // the requests of jobs may ask for other amounts now, even if no sum has changed
	return nil
}

// renewJobs does the work of renew for some jobs. If all is false, jobs has one element, and renewJobs does nothing if its rule, its live limits
// and its shared budgets are as before.
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
			if all || moved || s.Follows() || rule.Scope != j.Rule.Scope { // else no limit of the process follows from the rule
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

// link sets the rule and the live limits that a job and its processes read, and places their budgets below the shared budgets that follow from
// these. moved: a budget is below another shared budget than before.
func (a *Arbiter) link(j *job) (moved bool) {
	p, shared, up := &j.request.Process, j.shared, j.cap
	j.Rule = a.policy.For(*p)
	j.Live = a.liveLimits(j.limitOwner(), p)
	a.moveTo(j.budget, &j.shared, a.shareFor(j), a.ledger.MoveBudget)
	a.capJob(j)
	moved = j.shared != shared || j.cap != up
	for _, s := range j.sessions {
		moved = a.linkSession(s) || moved
	}
	return moved
}

// linkSession does the same for a process. Live limits of a bare process are set for its job only.
func (a *Arbiter) linkSession(s *session) (moved bool) {
	if s.job.run {
		s.Live = a.liveLimits(s.limitOwner(), &s.process)
	}
	return a.capSession(s)
}

// liveLimits returns the live limits of a job or a process, and enters the user there.
func (a *Arbiter) liveLimits(of rules.Owner, p *rules.Process) *rules.Limits {
	l := a.limits[of]
	if l != nil {
		l.UID, l.User = p.UID, p.User
	}
	return l
}

// renewLease shows a lease's limits on the client's page, and opens the credit word again if no limit is exceeded any more. moved: the lease is below
// another shared budget than before.
func (a *Arbiter) renewLease(s *session, l *lease, moved bool) {
	if moved {
		a.noteChain(l) // with this lease the new budget may hold more than its limit
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
	if a.setNotify(l); moved && l.contended() { // a request may wait at the new budget
		a.recallAll(l)
	}
}

// jobChanges appends the changes of limits of a job's budget and of the shared budgets above it.
func (a *Arbiter) jobChanges(changes []limitChange, j *job) []limitChange {
	for _, d := range a.devices {
		for s := range j.shares {
			l := s.limits(d)
			if j.pending { // the job waits for that reservation too
				l.Min = min(l.Min, s.budget.Limits(d.Index).Min)
			}
			changes = appendChange(changes, s.budget, d, l)
		}
		changes = appendChange(changes, j.budget, d, j.limits(d))
	}
	return changes
}

// sessionChanges appends the changes of limits of a session's budget and of the cgroups around its process. A dead session reserves nothing.
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

// appendChange appends a change if a budget's limits on a device differ from l. Usually few of a job's processes have changed limits.
func appendChange(changes []limitChange, b *accounting.Budget, d *device, l accounting.Limits) []limitChange {
	if l == b.Limits(d.Index) {
		return changes
	}
	return append(changes, limitChange{budget: b, device: d, limits: l})
}

// setLimits writes limits into the ledger, and returns the changes that it made, each with the limits before it. With admit, a raised
// memory.min must have room: else setLimits undoes the changes that it made before, and returns the refusal.
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

// writeLimits writes limits into the ledger, and the headroom that goes with their reservation.
func (a *Arbiter) writeLimits(c limitChange, headroom accounting.Bytes) {
	_ = a.ledger.SetLimits(c.budget, c.device.Index, c.limits) // the device is there
	_ = a.ledger.ReserveOverhead(c.budget, c.device.Index, headroom)
	a.changed()
}
