package arbiter

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file suspends jobs, and judges what became of that. A job gives its memory back when the daemon has run a hook or stopped a unit for it
// (Errand). The arbiter judges the result by what the job holds, and never by what the hook says. The way back is a request in the queue
// (wantsReturn) for all that the job held: returns.go has it. evict.go chooses the jobs that make room for others.

// Times of the suspension of jobs.
const (
	settleWithin  = 2 * time.Second  // after its hook, a job has this long to give memory back
	askAgainAfter = 30 * time.Second // a job that gave nothing is not asked again for this long; the time doubles each time
	askAgainMost  = time.Hour
	unitReturns   = 10 * time.Minute // memory stays reserved for so long for a unit that has started and has not taken all of it
)

// Errands returns what the daemon must do since the last call. The daemon calls ErrandDone for each, once.
func (a *Arbiter) Errands() []Errand {
	all := a.errands
	a.errands = nil
	return all
}

// Suspend asks a job to give its memory back, because a person wants that. A stuck job is asked again, and nothing stays reserved for it.
// ErrNoJob: there is no such job. ErrRange: its rule does not say how, it holds nothing or a reservation, or it is suspended already.
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
	case a.fullOfSuspensions(j):
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

// suspend asks a job to give its memory back. t is the request that needs the room; nil: the person by asked.
func (a *Arbiter) suspend(now time.Time, j *job, t *ticket, by *Person) {
	if j.suspension == nil {
		j.suspension = &suspension{}
		a.suspensions++
	}
	s, stuck := j.suspension, j.residence() == Stuck
	s.state, s.asked, s.answered, s.failure, s.waiter, s.by, s.lost = Suspending, now, time.Time{}, "", 0, by, false
	if stuck { // it returns to what it had before, and no part of that is reserved any more
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

// Resume lets a suspended job take its memory again as soon as there is room: it adds a request for everything that the job held to the queue.
// For a stuck job it asks once more. ErrNoJob: there is no such job. ErrRange: the job is not suspended. A *Result: what it held can never
// have room.
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

// ErrandDone records that an errand has ended: the hook of a job, or the stop or start of its unit. failure says how that failed; "": it did
// not. Unknown errands are ignored.
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

// settleAll judges all jobs that were asked to give their memory back or to take it again.
func (a *Arbiter) settleAll(now time.Time) {
	for _, id := range a.Jobs() {
		a.settle(now, a.jobs[id])
	}
}

// settle judges a job that was asked to give its memory back or to take it again, once its hook has ended.
func (a *Arbiter) settle(now time.Time, j *job) {
	s := j.suspension
	switch j.residence() {
	case Suspending:
		gave, keeps := a.gave(j)
		drains := len(j.sessions) > 0 && !slices.ContainsFunc(j.sessions, (*session).alive) // its unit has stopped, and the device is behind
		if !s.answered.IsZero() && (gave && !keeps || !drains && !now.Before(s.answered.Add(settleWithin))) {
			a.settleSuspending(now, j, gave)
		}
	case Resuming, Stuck:
		lacks, _ := a.gave(j)
		switch {
		case s.answered.IsZero():
		case !lacks:
			a.settleReturned(now, j, now, wording.TookAgain)
		case s.state == Stuck:
		case s.failure != "":
			s.state = Stuck
			a.suspensionEvent(now, j, EventStuck, now.Sub(s.asked), fmt.Sprintf(wording.ResumeFailed, s.failure))
		case !now.Before(s.answered.Add(j.returnsWithin())):
			a.settleReturned(now, j, s.answered, wording.TookPart)
		}
	case Suspended:
		switch lacks, _ := a.gave(j); { // its programs may have allocated without being asked
		case !lacks:
			a.settleReturned(now, j, now, wording.TookAgain)
		case a.isUsedAgain(j):
			a.settleReturned(now, j, now, wording.TookPart)
		}
	}
}

// isUsedAgain reports whether the programs of a suspended job that takes its memory again on use have begun to do so.
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

// returnsWithin returns for how long memory stays reserved for a job that was asked to take it, and has not taken all of it. A server can be
// slow to start. A hook may end before its server has allocated, and no other job may have the memory for as long as it could not be asked for it.
func (j *job) returnsWithin() time.Duration {
	if j.byUnit() {
		return unitReturns
	}
	return max(settleWithin, j.evict().MinResident)
}

// settleSuspending ends the state Suspending: the job is suspended if it gave anything, whatever its hook said. Otherwise it stays as it was,
// and is not asked again for a time that doubles with each failure.
func (a *Arbiter) settleSuspending(now time.Time, j *job, gave bool) {
	s := j.suspension
	took := now.Sub(s.asked)
	s.asked, a.noticesDue = now, true
	if gave {
		s.state, s.failures, s.rest = Suspended, 0, nil
		a.isUsedAgain(j) // notes what it keeps
		a.suspensionEvent(now, j, EventSuspended, took, wording.GaveBack)
		s.waiter, s.by = 0, nil // no user has asked for its return
		return
	}
	s.state, s.had = Resident, nil
	if s.lost { // the job is not to blame, and may be asked again at once
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
	if len(j.sessions) == 0 { // only its unit kept it
		a.endJob(now, j)
	}
}

// settleReturned ends the suspension of a job, which came back at a time: its memory is its own again, and nothing is reserved for it.
func (a *Arbiter) settleReturned(now time.Time, j *job, back time.Time, text string) {
	s := j.suspension
	took := now.Sub(s.asked)
	a.withdrawReturn(now, j)
	s.state, s.had, s.asked, s.resumed = Resident, nil, now, back
	_, _ = a.setLimits(a.jobChanges(nil, j), false)
	a.suspensionEvent(now, j, EventResumed, took, text)
	s.by = nil
	if len(j.sessions) == 0 { // its unit has ended again
		a.endJob(now, j)
	}
}

// forgetOn ends the suspensions of jobs on a device that was lost: what they held there cannot come back.
func (a *Arbiter) forgetOn(now time.Time, d *device) {
	for _, id := range a.Jobs() {
		j := a.jobs[id]
		if j == nil || j.residence() == Resident {
			continue
		}
		delete(j.suspension.had, d)
		t := a.returning(j)
		switch {
		case len(j.suspension.had) == 0:
			a.settleReturned(now, j, now, wording.WentAway)
		case t != nil: // it asks for what it held on the other devices
			a.withdrawReturn(now, j)
			again := a.returnOf(j)
			again.place = t.place
			a.decideNew(now, again)
		}
	}
}
