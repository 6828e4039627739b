package arbiter

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// This file has the residence of jobs: whether the memory of a job is on its devices, is being given back, or is taken again. A job gives its
// memory back when the daemon has run a hook or stopped a unit for it (Errand). The arbiter judges the result by what the job holds, and
// never by what the hook says. The way back is a request in the queue (wantsReturn) for all that the job held. evict.go chooses the jobs that
// make room for others.

// Residence says where the memory of a job is.
type Residence = figures.Residence

// Values of Residence.
const (
	Resident   Residence = "" // it has its memory
	Suspending           = figures.Suspending
	Suspended            = figures.Suspended
	Resuming             = figures.Resuming
	Stuck                = figures.Stuck
)

// Times of the suspension of jobs.
const (
	settleWithin  = 2 * time.Second  // after its hook, a job has this long to give memory back
	askAgainAfter = 30 * time.Second // a job that gave nothing is not asked again for this long; the time doubles each time
	askAgainMost  = time.Hour
	unitReturns   = 10 * time.Minute // memory stays reserved for so long for a unit that has started and has not taken all of it
)

// suspension says whether the memory of a job is on its devices, and what the job held before.
type suspension struct {
	state    Residence
	asked    time.Time                    // when the present state began
	answered time.Time                    // when the hook ended, or the unit stopped or started; zero: it has not
	failure  string                       // how the hook or unit failed; "": it did not
	unit     string                       // unit of the job's processes; "": none
	evict    rules.Evict                  // settings of the job's rule when it was asked to give its memory back
	had      map[*device]memory           // what the job held when it was asked to give it back
	rest     map[*device]accounting.Bytes // what the suspended job held when it was last judged; nil: it was not
	errand   uint64                       // number of the last errand
	waiter   TicketID                     // request that needs the room; 0: a person asked
	by       *Person                      // user who asked last; nil: the arbiter did
	resumed  time.Time                    // when the job last returned; zero: never
	failures int                          // number of times in a row that the job gave nothing
	notUntil time.Time                    // the job is not chosen before this time
	place    Place                        // place of its request to return under the earlier daemon, until ContinueSuspensions; the zero Place: none
	lost     bool                         // the daemon was started again while its hook ran
}

// memory has the amounts that a job holds on a device.
type memory struct {
	bytes    accounting.Bytes // bytes that count in its budgets, without idle credit
	overhead accounting.Bytes // bytes that its processes take beside that, by the device's figures
	contexts int
}

// Person is a user who asks for a suspension or a return, and the process by which the user asks; 0: not known.
type Person struct {
	UID uint32
	PID int
}

// Errand is something that the daemon does for the arbiter: it asks a job to give its memory back, or to take it again.
type Errand struct {
	ID      uint64 // for ErrandDone
	Job     JobID
	Resume  bool // take the memory again; false: give it back
	Evict   rules.Evict
	Unit    string           // unit of the job's processes; "": none
	Device  int              // device with the request that needs the room; -1: a person asked, or the job resumes
	Wanted  accounting.Bytes // bytes that the request asks for; 0: everything
	PIDs    []int            // living processes of the job
	Process rules.Process    // process for which the job's rule was chosen
}

// Errands returns what the daemon must do since the last call. The daemon calls ErrandDone for each, once.
func (a *Arbiter) Errands() []Errand {
	all := a.errands
	a.errands = nil
	return all
}

// Residence returns where the memory of a job is, and what it gave back in bytes on all devices. It returns false for an unknown job.
func (a *Arbiter) Residence(id JobID) (r Residence, gave accounting.Bytes, known bool) {
	j := a.jobs[id]
	if j == nil {
		return Resident, 0, false
	}
	for _, d := range a.devices {
		gave = gave.Plus(a.gaveOn(j, d).bytes)
	}
	return j.residence(), gave, true
}

// JobProcess returns the process for which the rule of a job was chosen. It returns false for an unknown job.
func (a *Arbiter) JobProcess(id JobID) (rules.Process, bool) {
	if j := a.jobs[id]; j != nil {
		return j.request.Process, true
	}
	return rules.Process{}, false
}

// residence returns where the memory of a job is.
func (j *job) residence() Residence {
	if j.suspension == nil {
		return Resident
	}
	return j.suspension.state
}

// heldOn returns what a job and its ended processes hold on a device.
func (a *Arbiter) heldOn(j *job, d *device) (m memory) {
	for l := range j.leasesOn(d) {
		m.bytes = m.bytes.Plus(l.Granted().Less(a.idle(l)).Plus(l.Charged()))
		m.overhead = m.overhead.Plus(l.uncharged())
		m.contexts += l.contexts
	}
	return m
}

// gaveOn returns what a job has given back on a device since it was asked to.
func (a *Arbiter) gaveOn(j *job, d *device) memory {
	if j.residence() == Resident {
		return memory{}
	}
	had, has := j.suspension.had[d], a.heldOn(j, d)
	return memory{had.bytes.Less(has.bytes), had.overhead.Less(has.overhead), max(0, had.contexts-has.contexts)}
}

// wantsBack returns the bytes that a suspended job reserves on a device to return: what it held, and no more than its own limit now allows.
func (j *job) wantsBack(d *device) accounting.Bytes {
	return min(j.suspension.had[d].bytes, j.Memory(d.bounds()).Max)
}

// keepsFor returns the bytes that are reserved on a device for a job that takes its memory again.
func (j *job) keepsFor(d *device) accounting.Bytes {
	if r := j.residence(); r != Resuming && r != Stuck {
		return 0
	}
	return j.wantsBack(d)
}

// evict returns how a job gives its memory back. A suspended job returns in the way in which it left, also if its rule has another way by now.
func (j *job) evict() *rules.Evict {
	if s := j.suspension; j.residence() != Resident && s.evict.Evicts() && s.evict.How != j.Rule.Evict.How {
		return &s.evict
	}
	return &j.Rule.Evict
}

// byUnit reports whether a job gives its memory back by the end of its unit.
func (j *job) byUnit() bool { return j.evict().How == rules.EvictByUnit }

// contextsAway returns how many contexts fewer a suspended job has on a device than when it was asked to give its memory back.
func (j *job) contextsAway(d *device) int {
	n := j.suspension.had[d].contexts
	for l := range j.leasesOn(d) {
		n -= l.contexts
	}
	return max(0, n)
}

// unit returns the systemd unit in which all processes of a job run; "": there is none.
func (j *job) unit() string {
	name := j.request.Process.Unit
	for _, s := range j.sessions {
		if s.alive() && s.process.Unit != name {
			return ""
		}
	}
	return name
}

// sharesUnit reports whether a process of another job runs in a unit.
func (a *Arbiter) sharesUnit(j *job, unit string) bool {
	for _, s := range a.sessions {
		if s.job != j && s.alive() && s.process.Unit == unit {
			return true
		}
	}
	return false
}

// takeOver gives a new job the suspension of a job whose unit was stopped, with its reservation, if the new one starts in that unit. The old
// job ends.
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

// outlives reports whether a job stays although its last process has ended: its unit was stopped, and will be started again.
func (j *job) outlives() bool { return j.residence() != Resident && j.byUnit() }

// returnsOnStart reports whether a suspended job returns with the start of its next process, because that is in its unit.
func (j *job) returnsOnStart() bool { return j.residence() == Suspended && j.byUnit() }

// noUnit reports whether a job would give its memory back by the end of its unit, but has none for itself.
func (a *Arbiter) noUnit(j *job) bool {
	unit := j.unit()
	return j.byUnit() && (unit == "" || a.sharesUnit(j, unit))
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

// newErrand adds an errand for a job.
func (a *Arbiter) newErrand(j *job) *Errand {
	a.lastErrand++
	j.suspension.errand = a.lastErrand
	e := Errand{ID: a.lastErrand, Job: j.id, Evict: *j.evict(), Unit: j.suspension.unit, Device: -1, Process: j.request.Process}
	for _, p := range j.sessions {
		if p.alive() {
			e.PIDs = append(e.PIDs, p.process.PID)
		}
	}
	a.errands = append(a.errands, e)
	return &a.errands[len(a.errands)-1]
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

// returning returns the waiting request with which a job returns; nil: there is none.
func (a *Arbiter) returning(j *job) *ticket {
	if i := slices.IndexFunc(j.tickets, func(t *ticket) bool { return t.kind == wantsReturn }); i >= 0 {
		return j.tickets[i]
	}
	return nil
}

// withdrawReturn takes the waiting request with which a job returns out of the queue, if there is one.
func (a *Arbiter) withdrawReturn(now time.Time, j *job) {
	if t := a.returning(j); t != nil {
		a.dequeue(now, t)
		t.done = true
		a.changed()
	}
}

// returnOf returns the request for all that a suspended job held.
func (a *Arbiter) returnOf(j *job) *ticket {
	t := &ticket{kind: wantsReturn, job: j}
	for _, d := range a.devices {
		if j.wantsBack(d) > 0 {
			t.candidates = append(t.candidates, candidate{device: d})
		}
	}
	return t
}

// serveReturn reserves all that a suspended job held, and asks the job to take it.
func (a *Arbiter) serveReturn(now time.Time, t *ticket) {
	t.job.suspension.state = Resuming
	_, _ = a.setLimits(a.jobChanges(nil, t.job), false)
	a.finish(now, t, Result{Granted: true})
	a.askToReturn(now, t.job)
}

// askToReturn asks a job for which memory is reserved to take it.
func (a *Arbiter) askToReturn(now time.Time, j *job) {
	s := j.suspension
	s.state, s.asked, s.answered, s.failure = Resuming, now, time.Time{}, ""
	a.newErrand(j).Resume = true
	a.suspensionEvent(now, j, EventResuming, 0, wording.ResumeAsked)
}

// returnOnUse reserves all that a suspended job held, because its unit was started by systemd or a user. t is the request of its first process,
// or of its `gpuarb run`. at is the device that the request got, if one device was enough. Memory on other devices does not come back.
func (a *Arbiter) returnOnUse(now time.Time, t *ticket, at *candidate) {
	j := t.job
	s := j.suspension
	a.withdrawReturn(now, j)
	maps.DeleteFunc(s.had, func(d *device, _ memory) bool { return !t.on(d) || t.any && at.device != d })
	s.state, s.asked, s.answered, s.failure = Resuming, now, now, ""
	_, _ = a.setLimits(a.jobChanges(nil, j), false)
	a.suspensionEvent(now, j, EventResuming, 0, wording.StartedAgain)
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

// gave reports whether a job has given back memory since it was asked to, and whether it keeps some of what it had.
func (a *Arbiter) gave(j *job) (gave, keeps bool) {
	for d, had := range j.suspension.had {
		g := a.gaveOn(j, d).bytes
		gave, keeps = gave || g > 0, keeps || g < had.bytes
	}
	return gave, keeps
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
