package arbiter

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file tells the daemon what to record of suspended jobs, and restores their suspensions after a restart of the daemon. suspend.go
// changes the suspensions.

// MaxSuspensions is the most jobs with a recorded suspension. Further jobs are not asked to give their memory back, because the next daemon
// would not know their suspensions.
const MaxSuspensions = 256

// Suspension is the record of a job that was asked to give its memory back, for the next daemon.
type Suspension struct {
	Job      JobID
	Key      string // key of the job (JobRequest.Key); "": the job is one process that was started without `gpuarb run`
	Ended    bool   // the job has ended, and its record can go; the other fields are zero
	Process  rules.Process
	State    Residence
	How      rules.EvictHow
	Unit     string // unit of its processes; "": none
	Had      []HeldMemory
	Asked    time.Time // beginning of State
	Answered bool      // the hook has ended, or the unit has stopped or started
	Failures int
	Resumed  time.Time // zero: never
	NotUntil time.Time
	Return   Place // place of the waiting request with which it returns; the zero Place: none waits
}

// HeldMemory is memory that a job held on a device.
type HeldMemory struct {
	Device          int
	Bytes, Overhead accounting.Bytes
	Contexts        int
}

// Suspensions returns the suspensions that have changed since the last call, in the order of the jobs.
func (a *Arbiter) Suspensions() (all []Suspension) {
	if len(a.suspensionsChanged) == 0 {
		return nil
	}
	for id := range a.suspensionsChanged {
		if j := a.jobs[id]; j != nil && j.suspension != nil {
			all = append(all, a.suspensionOf(j))
		} else {
			all = append(all, Suspension{Job: id, Ended: true})
		}
	}
	clear(a.suspensionsChanged)
	slices.SortFunc(all, func(x, y Suspension) int { return int(x.Job) - int(y.Job) })
	return all
}

// suspensionOf returns what the next daemon must know of a job that was asked to give its memory back.
func (a *Arbiter) suspensionOf(j *job) Suspension {
	s := j.suspension
	r := Suspension{Job: j.id, Key: j.request.Key, Process: j.request.Process, State: s.state, How: s.evict.How, Unit: s.unit, Asked: s.asked,
		Answered: !s.answered.IsZero(), Failures: s.failures, Resumed: s.resumed, NotUntil: s.notUntil}
	for _, d := range a.devices {
		if had, ok := s.had[d]; ok {
			r.Had = append(r.Had, HeldMemory{d.Index, had.bytes, had.overhead, had.contexts})
		}
	}
	if t := a.returning(j); t != nil {
		r.Return = t.place
	}
	return r
}

// tooManySuspensions reports whether the jobs cannot all be asked to give their memory back, because MaxSuspensions leaves no records for
// those of them that were never asked before.
func (a *Arbiter) tooManySuspensions(jobs ...*job) bool {
	further := 0
	for _, j := range jobs {
		if j.suspension == nil {
			further++
		}
	}
	return a.suspensions+further > MaxSuspensions
}

// JobOf returns the job of a session; 0: the session is unknown.
func (a *Arbiter) JobOf(id SessionID) JobID {
	if s := a.sessions[id]; s != nil {
		return s.job.id
	}
	return 0
}

// RestoreSuspension restores the suspension of a job after a restart of the daemon, with the reservation of a job that was resuming or
// stuck. The daemon calls it in Restore, and ContinueSuspensions afterwards. If the job is not open, and its unit was stopped,
// RestoreSuspension opens the job again, without a process. ErrNoJob: the job has ended. ErrExists: the job has a suspension already.
func (a *Arbiter) RestoreSuspension(now time.Time, r Suspension) error {
	j := a.jobs[r.Job]
	switch {
	case j == nil && (r.How != rules.EvictByUnit || r.Unit == "" || r.State == Resident || r.Job == 0):
		return fmt.Errorf(wording.JobEnded, r.Job, ErrNoJob)
	case j == nil:
		j = &job{id: r.Job, request: JobRequest{Process: r.Process, Command: r.Process.Command, Key: r.Key}, Job: rules.Job{Rule: a.policy.For(r.Process)}, closed: true}
		a.newJob(now, j)
	}
	if j.suspension != nil {
		return fmt.Errorf("job %d: %w", r.Job, ErrExists)
	}
	s := &suspension{state: r.State, evict: j.Rule.Evict, unit: r.Unit, asked: r.Asked, failures: r.Failures, resumed: r.Resumed, notUntil: r.NotUntil, place: r.Return}
	if s.evict.How = r.How; r.Answered {
		s.answered = now
	}
	if r.State != Resident {
		s.had = make(map[*device]memory)
	}
	for _, had := range r.Had {
		if d := a.device(had.Device); d != nil && s.had != nil {
			s.had[d] = memory{had.Bytes, had.Overhead, had.Contexts}
		}
	}
	j.suspension = s
	a.suspensions++
	_, _ = a.setLimits(a.jobChanges(nil, j), false)
	a.suspensionChanged(j)
	return nil
}

// ContinueSuspensions continues the restored suspensions. The daemon calls it in Restore, after all jobs, sessions and waiting requests are
// restored. An errand that had not ended under the earlier daemon has lost its result. The stop or start of a unit is made an errand again,
// which changes nothing if the unit has stopped or started meanwhile. The hook by which a job takes its memory again is run once more. The
// hook by which a job gives its memory back is not: what the job holds shows the result. Requests for returns get their places in the queue
// again.
func (a *Arbiter) ContinueSuspensions(now time.Time) {
	for _, id := range a.Jobs() {
		j := a.jobs[id]
		s := j.suspension
		switch j.residence() {
		case Suspending:
			if j.byUnit() && s.answered.IsZero() {
				a.newErrand(j)
			} else if s.answered.IsZero() {
				s.answered, s.lost = now, true
			}
		case Resuming:
			if s.answered.IsZero() {
				a.askToReturn(now, j)
			}
		case Suspended:
			started := j.byUnit() && slices.ContainsFunc(j.sessions, (*session).alive)
			if s.place == (Place{}) && !started {
				continue
			}
			t := a.returnOf(j)
			t.place, s.place = s.place, Place{}
			if len(t.candidates) == 0 { // its devices are gone
				continue
			}
			a.assignPlace(now, t)
			a.enqueue(now, t)
		}
	}
}
