package arbiter

import (
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// This file puts limits in force: of a rule, of a job's request, and live ones. After a change of any of these, renew computes the
// limits of the jobs and processes below it, writes those that differ into the ledger, and tells the clients.

// limitChange is a budget's new limits on a device.
type limitChange struct {
	budget *accounting.Budget
	device *device
	limits accounting.Limits

	kept accounting.Bytes // headroom, before the change; 0: none
}

// everyJob picks all jobs.
func everyJob(*job) bool { return true }

// renew puts the rules and the live limits in force for those jobs that under picks (nil: for those whose rule is another one than before),
// and for their processes. With admit a memory.min that is raised must have room: else the
// refusal is returned, and the ledger is as it was.
func (a *Arbiter) renew(now time.Time, under func(*job) bool, admit bool) *accounting.Refusal {
	var jobs []*job
	for _, j := range a.jobs {
		if under == nil || under(j) {
			jobs = append(jobs, j)
		}
	}
	if admit { // all or nothing
		if refused := a.renewJobs(now, jobs, true, true); refused != nil {
			return refused
		}
	} else {
		for _, j := range jobs { // one after the other, which reads the memory of each once
			a.renewJobs(now, []*job{j}, under != nil, false)
		}
	}
	for p := range a.overs {
		a.squeeze(now, p)
	}
	a.changed() // what jobs ask for may be another thing by now, though no sum has changed
	return nil
}

// renewJobs is renew for these jobs. Unless all is set there is one, and nothing is done if its rule and its live limits are as they were.
func (a *Arbiter) renewJobs(now time.Time, jobs []*job, all, admit bool) *accounting.Refusal {
	changes := make([]limitChange, 0, 2*len(a.devices)*len(jobs))
	moved := false
	for _, j := range jobs {
		rule, live, user := j.Rule, j.Live, j.User
		moved = a.link(j) || moved
		if !all && !moved && rule == j.Rule && live == j.Live && user == j.User {
			return nil
		}
		changes = a.jobChanges(changes, j)
		for _, s := range j.sessions {
			if all || moved || s.Follows() || rule.Scope != j.Rule.Scope { // else no limit of its own follows from the rule
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

// link makes a job and its processes read their rule and their rows of the table of live limits, and places them below the budgets that
// they share. It reports whether these are others than before.
func (a *Arbiter) link(j *job) (moved bool) {
	p, shared, up := &j.request.Process, j.shared, j.cap
	j.Rule = a.policy.For(*p)
	j.Live = a.owned(j.limitOwner(), p)
	a.moveTo(j.budget, &j.shared, a.shareFor(j), a.ledger.MoveBudget)
	a.capJob(j)
	moved = j.shared != shared || j.cap != up
	for _, s := range j.sessions {
		moved = a.linkSession(s) || moved
	}
	return moved
}

// linkSession is link for a process. The job of a bare process has its live limits already.
func (a *Arbiter) linkSession(s *session) (moved bool) {
	if s.job.run {
		s.Live = a.owned(s.limitOwner(), &s.process)
	}
	return a.capSession(s)
}

// owned returns the live limits of a job or a process, whose user is known by now.
func (a *Arbiter) owned(of rules.Owner, p *rules.Process) *rules.Limits {
	l := a.limits[of]
	if l != nil {
		l.UID, l.User = p.UID, p.User
	}
	return l
}

// renewLease tells a lease's client of its limits.
func (a *Arbiter) renewLease(s *session, l *lease, moved bool) {
	if moved {
		a.noteChain(l) // it may have brought more than there is room for
	}
	l.SetStreamsMax(s.Streams().Max)
	a.relend(l)
	if l.lost || !s.alive() {
		return
	}
	if l.closed && !l.Over() {
		l.closed = false
		a.flag(l)
	}
	l.word.Limit(l.maxInForce())
	if a.reflag(l); moved && l.contended() { // a request may wait at a budget that it has come under
		a.recallAll(l)
	}
}

// jobChanges appends those limits of a job's budget, and of those it shares, that are not what they were.
func (a *Arbiter) jobChanges(changes []limitChange, j *job) []limitChange {
	for _, d := range a.devices {
		for s := range j.shares {
			l := s.limits(d)
			if j.pending { // what the rule reserves for all of them is part of what it waits for
				l.Min = min(l.Min, s.budget.Limits(d.Index).Min)
			}
			changes = appendChange(changes, s.budget, d, l)
		}
		changes = appendChange(changes, j.budget, d, j.limits(d))
	}
	return changes
}

// sessionChanges appends those limits of a session's budget, and of the cgroups around it, that are not what they were. A dead one reserves nothing.
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

// appendChange appends a budget's limits on a device if they are not what they were: of a job's thousand processes hardly any.
func appendChange(changes []limitChange, b *accounting.Budget, d *device, l accounting.Limits) []limitChange {
	if l == b.Limits(d.Index) {
		return changes
	}
	return append(changes, limitChange{budget: b, device: d, limits: l})
}

// memory is a shared budget's limits on a device, with what they come from.
func (s *shared) memory(d *device) rules.Memory {
	if s.limit != nil {
		return s.limit.Memory(d.bounds())
	}
	m := s.rule.Memory(d.bounds())
	if d.IsGPU() { // as each program's own is of none but GPUs
		m.Min, m.MinBy = d.bounds().Amount(s.rule.Min), s.rule.Name+", shared"
	}
	return m
}

// limits are a shared budget's limits on a device.
func (s *shared) limits(d *device) accounting.Limits { return s.memory(d).Limits }

// inForce are limits as they are in force: where nothing is kept any more, or not yet, without Min.
func inForce(m rules.Memory, d *device, keeps bool) accounting.Limits {
	if !keeps {
		m.Min = 0
	}
	m.Min = min(m.Min, d.Total)
	return m.Limits
}

// setLimits writes limits into the ledger, and returns those that it changed
// (with what they were). With admit, a memory.min that is raised must have room, or
// nothing is changed.
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
		c.kept, _ = c.budget.Kept(c.device.Index)
		a.putLimits(c, c.device.headroomFor(c.budget, least))
		c.limits = old
		done = append(done, c)
	}
	if refused == nil {
		return done, nil
	}
	for _, c := range slices.Backward(done) {
		a.putLimits(c, c.kept)
	}
	return nil, refused
}

// putLimits writes limits, with the headroom that is kept for what they reserve.
func (a *Arbiter) putLimits(c limitChange, headroom accounting.Bytes) {
	_ = a.ledger.SetLimits(c.budget, c.device.Index, c.limits) // it is there
	_ = a.ledger.KeepBeside(c.budget, c.device.Index, headroom)
	a.changed()
}

// moveTo puts a job's budget below another shared budget than it was; nil: below none.
func (a *Arbiter) moveTo(b *accounting.Budget, at **shared, to *shared, put func(b, up *accounting.Budget) error) {
	old := *at
	if to == old {
		return
	}
	*at = to
	a.changed()
	if err := put(b, budgetOf(to)); err != nil {
		panic("arbiter: " + err.Error()) // a job's is above no other one, and no cap
	}
	a.dropShared(old)
}
