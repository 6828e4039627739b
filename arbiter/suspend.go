package arbiter

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file suspends and resumes jobs, and judges the results. To suspend a job, the arbiter gives the daemon an errand: to run a hook, or
// to stop the unit of the job. If the job then holds less memory than before, it counts as suspended, whatever the hook reports. A job
// returns by a request in the queue (wantsReturn) for all the memory that the job held. The file returns.go makes and serves these
// requests. The choice of the idle jobs that make room for waiting requests is in evict.go. The daemon calls this file for users, and
// tick.go calls it once a second.

// Times of the suspension of jobs.
const (
	settleWithin  = 2 * time.Second  // time from the end of its hook within which a job must give memory back
	askAgainAfter = 30 * time.Second // time for which a job that gave nothing is not asked again; it doubles with each further failure
	askAgainMost  = time.Hour        // upper bound of that time
	unitReturns   = 10 * time.Minute // time from the start of its unit for which memory stays reserved for a job that has not taken all of it
)

// Errands returns the errands that were added since the last call. The daemon carries out each of them, and then calls ErrandDone for it.
func (a *Arbiter) Errands() []Errand {
	all := a.errands
	a.errands = nil
	return all
}

// Suspend asks a job to give its memory back, because a user wants that. The job need not be idle. A stuck job is asked again, and nothing
// stays reserved for it. by is the user; nil: not known. ErrNoJob: there is no such job. ErrRange: the job cannot be suspended,
// because of its rule, its state, what it holds, its unit, the jobs inside it, or MaxSuspensions. The error says which.
func (a *Arbiter) Suspend(now time.Time, id JobID, by *Person) error {
	j := a.jobs[id]
	switch {
	case j == nil:
		return fmt.Errorf(wording.JobEnded, id, ErrNoJob)
	case j.residence() == Stuck:
		defer a.cycle(now)
		a.suspend(now, j, nil, by)
		return nil
	case !j.Rule.Evict.Evicts():
		return rules.Wrong(rules.ErrRange, wording.NoEvict, j.name(), j.Rule.Name)
	case j.residence() != Resident:
		return rules.Wrong(rules.ErrRange, wording.NotResident, j.name(), j.residence())
	case a.keepsPlace(j):
		return rules.Wrong(rules.ErrRange, wording.HoldsPlace, j.name())
	case a.noUnit(j):
		return rules.Wrong(rules.ErrRange, wording.NoUnit, j.name())
	case len(j.inside) > 0:
		return rules.Wrong(rules.ErrRange, wording.HasInside, j.name())
	case a.tooManySuspensions(j):
		return rules.Wrong(rules.ErrRange, wording.TooManyAsked, j.name(), MaxSuspensions)
	}
	for _, d := range a.devices {
		if a.heldOn(j, d).bytes > 0 && slices.ContainsFunc(j.sessions, (*session).alive) {
			a.suspend(now, j, nil, by)
			return nil
		}
	}
	return rules.Wrong(rules.ErrRange, wording.GivesNothing, j.name())
}

// suspend asks a job to give its memory back. t is the request that needs the room; nil: a user asked, who is in by.
func (a *Arbiter) suspend(now time.Time, j *job, t *ticket, by *Person) {
	if j.suspension == nil {
		j.suspension = &suspension{}
		a.suspensions++
	}
	s, stuck := j.suspension, j.residence() == Stuck
	s.state, s.asked, s.answered, s.failure, s.waiter, s.by, s.lost = Suspending, now, time.Time{}, "", 0, by, false
	if stuck { // s.had stays, so that the job can return later to what it held at first; its reservation ends with the state Stuck
		_, _ = a.setLimits(a.jobChanges(nil, j), false)
	} else {
		s.unit, s.evict, s.had = j.unit(), j.Rule.Evict, make(map[*device]memory)
		for _, d := range a.devices {
			if m := a.heldOn(j, d); m.bytes > 0 || m.contexts > 0 {
				s.had[d] = m
			}
		}
	}
	e, text := a.newErrand(j), wording.SuspendAsked
	if t != nil {
		s.waiter, e.Wanted = t.id, a.wantsBytes(t)
		if len(t.candidates) == 1 {
			e.Device = t.candidates[0].device.Index
		}
		text = fmt.Sprintf(wording.SuspendFor, t.nameFor(j.binding()))
	}
	a.noticesDue = true
	a.suspensionEvent(now, j, EventSuspending, 0, text)
}

// Resume asks for the return of a suspended job: it adds a request for all the memory that the job held to the queue, if no such request
// waits. When the request is served, the job is asked to take its memory again. A stuck job, for which the memory is reserved already, is
// asked at once. by is the user who wants that; nil: not known. ErrNoJob: there is no such job. ErrRange: the job is not suspended, or its
// rule has no command to resume it, so that it takes its memory when it is used. A *Result: the request was refused, because what the job
// held can never have room.
func (a *Arbiter) Resume(now time.Time, id JobID, by *Person) error {
	j := a.jobs[id]
	switch {
	case j == nil:
		return fmt.Errorf(wording.JobEnded, id, ErrNoJob)
	case j.residence() == Stuck:
		j.suspension.by = by
		a.askToReturn(now, j)
		return nil
	case j.residence() != Suspended:
		return rules.Wrong(rules.ErrRange, wording.NotSuspended, j.name())
	case j.evict().ResumesItself():
		return rules.Wrong(rules.ErrRange, wording.ResumesItself, j.name(), j.Rule.Name)
	case a.returning(j) == nil:
		j.suspension.by = by
		defer a.cycle(now)
		t := a.returnOf(j)
		a.decideNew(now, t)
		if r := t.result(); r.Reason != ReasonNone {
			return &r
		}
	}
	return nil
}

// ErrandDone records that an errand has ended: the hook of a job, or the stop or start of its unit. failure says how the errand failed; "":
// it succeeded. ErrandDone does nothing if the errand is unknown, has ended before, or is not the last errand of its job.
func (a *Arbiter) ErrandDone(now time.Time, errand uint64, failure string) {
	for _, j := range a.jobs {
		s := j.suspension
		if s == nil || s.errand != errand || s.state != Suspending && s.state != Resuming || !s.answered.IsZero() {
			continue
		}
		s.answered, s.failure = now, failure
		a.suspensionChanged(j)
		a.settle(now, j)
		a.cycle(now)
		return
	}
}

// settleAll calls settle for each job.
func (a *Arbiter) settleAll(now time.Time) {
	for _, id := range a.Jobs() {
		a.settle(now, a.jobs[id])
	}
}

// settle changes the residence of a job if what the job holds calls for that, or the time since the end of its errand. Jobs that were asked
// to give their memory back, or to take it again, stay as they are until the errand has ended. A suspended job becomes resident if its
// programs have taken memory without being asked.
func (a *Arbiter) settle(now time.Time, j *job) {
	s := j.suspension
	switch j.residence() {
	case Suspending:
		gave, keeps := a.gave(j)
		// drains: all processes have ended, and the driver has not freed all their memory yet
		drains := len(j.sessions) > 0 && !slices.ContainsFunc(j.sessions, (*session).alive)
		if !s.answered.IsZero() && (gave && !keeps || !drains && !now.Before(s.answered.Add(settleWithin))) {
			a.settleSuspending(now, j, gave)
		}
	case Resuming, Stuck:
		switch {
		case s.answered.IsZero():
		case a.hasTaken(j):
			a.settleReturned(now, j, now, wording.TookAgain)
		case s.state == Stuck:
		case s.failure != "":
			s.state = Stuck
			a.suspensionEvent(now, j, EventStuck, now.Sub(s.asked), fmt.Sprintf(wording.ResumeFailed, s.failure))
		case !now.Before(s.answered.Add(j.returnsWithin())):
			a.settleReturned(now, j, s.answered, wording.TookPart)
		}
	case Suspended:
		switch lacks, _ := a.gave(j); { // its programs may have taken memory without being asked
		case !lacks:
			a.settleReturned(now, j, now, wording.TookAgain)
		case a.isUsedAgain(j):
			a.settleReturned(now, j, now, wording.TookPart)
		}
	}
}

// isUsedAgain reports whether a suspended job that returns on use holds more on some device than at the last call. It stores in s.rest what
// the job holds now, for the next call. It returns false for jobs with other ways to return.
func (a *Arbiter) isUsedAgain(j *job) (used bool) {
	e, s := j.evict(), j.suspension
	if e.How != rules.EvictByHook || e.Returns() != rules.ReturnOnUse {
		return false
	}
	rest := make(map[*device]accounting.Bytes)
	for _, d := range a.devices {
		held := a.heldOn(j, d).bytes
		before, known := s.rest[d]
		used = used || known && held > before
		rest[d] = held
	}
	s.rest = rest
	return used
}

// returnsWithin returns the time from the end of its errand for which memory stays reserved for a job that has not taken all of it. A unit
// gets minutes, because its server can be slow to start. A job with a hook gets evict.min_resident, because its programs may allocate after
// the hook has ended. With its memory, the job could not be asked to make room for that long either.
func (j *job) returnsWithin() time.Duration {
	if j.byUnit() {
		return unitReturns
	}
	return max(settleWithin, j.evict().MinResident)
}

// settleSuspending ends the state Suspending. The job is suspended if it gave back any memory, whatever its hook reports. Otherwise it is
// resident, and is not asked again for a time that doubles with each failure. If the daemon was started again while the hook ran (s.lost),
// this does not count as a failure.
func (a *Arbiter) settleSuspending(now time.Time, j *job, gave bool) {
	s := j.suspension
	took := now.Sub(s.asked)
	s.asked, a.noticesDue = now, true
	if gave {
		s.state, s.failures, s.rest = Suspended, 0, nil
		a.isUsedAgain(j) // stores in s.rest what the job keeps
		a.suspensionEvent(now, j, EventSuspended, took, wording.GaveBack)
		s.waiter, s.by = 0, nil // the user or request that asked for the suspension did not ask for the return
		return
	}
	s.state, s.had = Resident, nil
	if s.lost { // the job may be asked again at once
		a.suspensionEvent(now, j, EventNotGiven, took, wording.SuspendLost)
		return
	}
	wait := min(askAgainAfter<<min(s.failures, 10), askAgainMost)
	s.notUntil = now.Add(wait)
	s.failures++
	why := s.failure
	if why == "" {
		why = wording.GaveNothing
	}
	a.suspensionEvent(now, j, EventNotGiven, took, fmt.Sprintf(wording.SuspendFailed, why, wording.Span(wait)))
	if len(j.sessions) == 0 { // it has no process, and is no longer kept for its unit
		a.endJob(now, j)
	}
}

// settleReturned makes a job resident, withdraws its request to return, and drops what is reserved for its return. The time
// evict.min_resident counts from back. The event says in text how the return ended.
func (a *Arbiter) settleReturned(now time.Time, j *job, back time.Time, text string) {
	s := j.suspension
	took := now.Sub(s.asked)
	a.withdrawReturn(now, j)
	s.state, s.had, s.asked, s.resumed = Resident, nil, now, back
	_, _ = a.setLimits(a.jobChanges(nil, j), false)
	a.suspensionEvent(now, j, EventResumed, took, text)
	s.by = nil
	if len(j.sessions) == 0 { // no process runs in its unit
		a.endJob(now, j)
	}
}

// forgetOn removes a lost device from what suspended jobs held, because that cannot come back. A job that held nothing on other devices
// becomes resident. If a job waits to return, a new request for what it held on the other devices takes the place of its request.
func (a *Arbiter) forgetOn(now time.Time, d *device) {
	for _, id := range a.Jobs() {
		j := a.jobs[id]
		if j == nil || j.residence() == Resident {
			continue
		}
		delete(j.suspension.had, d)
		a.suspensionChanged(j)
		a.noticesDue = true
		t := a.returning(j)
		switch {
		case len(j.suspension.had) == 0:
			a.settleReturned(now, j, now, wording.WentAway)
		case t != nil:
			a.withdrawReturn(now, j)
			again := a.returnOf(j)
			again.place = t.place
			a.decideNew(now, again)
		}
	}
}
