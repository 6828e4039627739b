package arbiter

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file adds jobs, sessions and leases to the state, without evaluating whether there is room. jobs.go, sessions.go and restore.go call
// it.

// newJob adds a job with its budget and shared budgets.
func (a *Arbiter) newJob(now time.Time, j *job) {
	j.opened, j.lastActive, j.untold = now, now, true
	a.countJob(j)
	r := &j.request
	j.Asked = rules.Request{Max: r.Max, Min: r.Min, Streams: r.Streams, PerProcess: r.PerProcess, MayPass: r.Process.MayPass(),
		Processor: slices.ContainsFunc(j.devices, func(d *device) bool { return !d.IsGPU() })}
	j.budget = a.ledger.OpenBudget(nil)
	j.budget.Owner = j
	j.putInside(a.ledger, a.jobs[r.Around])
	j.hidden = a.hiddenFrom(j)
	a.jobs[j.id] = j // link looks for the jobs of a shared budget
	a.link(j)
	a.takeOver(now, j)
	_, _ = a.setLimits(a.jobChanges(nil, j), false)
	a.lastJob = max(a.lastJob, j.id)
}

// startOf returns the request for a session's reservation at its start.
func (a *Arbiter) startOf(s *session, place Place) *ticket {
	t := &ticket{kind: wantsSession, job: s.job, session: s, place: place}
	if s.job.returnsOnStart() {
		t.candidates = a.returnOf(s.job).candidates
		return t
	}
	for _, d := range a.devices {
		if d.lost || !s.job.uses(d) {
			continue
		}
		if n, _ := t.reserves(d); n > 0 || s.job.shared != nil && s.job.shared.limits(d).Min > 0 {
			t.candidates = append(t.candidates, candidate{device: d})
		}
	}
	return t
}

// newSession adds a session, and a job for it if it has none. With pending, it reserves nothing yet.
func (a *Arbiter) newSession(now time.Time, r SessionRequest, pending bool) (*session, error) {
	j := a.jobs[r.Job]
	if r.Job != 0 && (j == nil || j.pending) {
		return nil, fmt.Errorf(wording.JobEnded, r.Job, ErrNoJob)
	}
	if j == nil {
		request := JobRequest{Process: r.Process, Command: r.Process.Command}
		j = &job{id: a.lastJob + 1, request: request, Job: rules.Job{Rule: a.policy.For(r.Process)}, closed: true, pending: pending}
		a.newJob(now, j)
	}
	process := &j.request.Process
	if r.Job != 0 {
		process = new(r.Process)
	}
	a.lastSession++
	s := &session{Client: rules.Client{Job: &j.Job, Asked: rules.Request{Max: r.Max}}, id: a.lastSession, process: process, job: j, opened: now, pending: pending,
		onFull: r.OnFull, slots: max(0, r.Slots), slotScope: r.SlotScope, reserve: r.StreamReserve}
	if r.Streams != 0 {
		s.Asked.Streams = max(1, r.Streams)
	}
	s.hidden = a.hidden(s.process)
	s.budget = a.ledger.OpenBudget(j.budget)
	s.budget.Owner = s
	a.linkSession(s)
	_, _ = a.setLimits(a.sessionChanges(nil, s), false)
	j.sessions = append(j.sessions, s)
	a.sessions[s.id] = s
	return s, nil
}

// newLease adds a lease that holds nothing. Refresh then writes its credit word.
func (a *Arbiter) newLease(now time.Time, s *session, d *device, w CreditWord) *lease {
	a.lastLease++
	w.Opened(a.lastLease)
	l := &lease{id: a.lastLease, word: w, session: s, device: d, opened: now, scope: a.scopeOf(s, d), touched: now, noted: notNoted, outside: !s.job.uses(d)}
	if err := a.ledger.OpenLease(l, s.budget, d.Index, s.Streams().Max); err != nil {
		panic("arbiter: " + err.Error()) // the ledger has every device
	}
	s.leases = append(s.leases, l)
	d.byPID[s.process.PID] = append(d.byPID[s.process.PID], l)
	a.leases[l.id] = l
	s.job.removeUnmanaged(d, s.process)
	a.unchargeUnmanaged(now, d, s.process)
	a.unhide(s, d)
	return l
}

// unhide notes that a process uses a device that its environment hides, and reserves memory there if there is room.
func (a *Arbiter) unhide(s *session, d *device) {
	j := s.job
	if !slices.Contains(s.hidden, d) && !slices.Contains(j.hidden, d) {
		return
	}
	s.hidden, j.hidden = without(s.hidden, d), without(j.hidden, d)
	a.updateHiddenOf(j.shared)
	_, _ = a.setLimits(a.sessionChanges(a.jobChanges(nil, j), s), true)
}

// Refresh writes the flags and the limit of a lease into its credit word, which may be on a new page. Unknown and ended leases are ignored.
func (a *Arbiter) Refresh(id LeaseID) {
	l := a.leases[id]
	if l == nil || !l.session.alive() {
		return
	}
	l.closed, l.notify = l.lost || l.Over(), !l.lost && l.wanted()
	a.updateFlags(l)
	l.word.Limit(l.maxInForce())
	if l.contended() {
		a.recallAll(l)
	}
}

// takeOver looks for an old job whose unit was stopped, if a new job starts in that unit. It moves the suspension and the reservation to
// the new job. The old job, which has no living process, ends.
func (a *Arbiter) takeOver(now time.Time, j *job) {
	unit := j.request.Process.Unit
	if unit == "" {
		return
	}
	for _, id := range a.Jobs() {
		old := a.jobs[id]
		if old == j || !old.outlives() || old.suspension.unit != unit || slices.ContainsFunc(old.sessions, (*session).alive) {
			continue
		}
		a.withdrawReturn(now, old)
		j.suspension, old.suspension = old.suspension, nil
		old.closed = true
		a.suspensionChanged(j)
		a.suspensionChanged(old)
		a.endJob(now, old)
		_, _ = a.setLimits(a.jobChanges(nil, j), false)
		return
	}
}
