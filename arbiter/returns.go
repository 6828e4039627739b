package arbiter

import (
	"maps"
	"time"

	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file lets suspended jobs return: it makes the request for all that a job held, and asks the job to take its memory when the request is
// served (serve.go). suspend.go judges the result.

// newErrand adds an errand for a job, to give its memory back. The caller may change the errand until it adds the next.
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

// serveReturn grants the request with which a suspended job returns: it reserves all the memory that the job held, and asks the job to take
// it.
func (a *Arbiter) serveReturn(now time.Time, t *ticket) {
	t.job.suspension.state = Resuming
	_, _ = a.setLimits(a.jobChanges(nil, t.job), false)
	a.finish(now, t, Result{Granted: true})
	a.askToReturn(now, t.job)
}

// askToReturn asks a job to take the memory that is reserved for it. It adds an errand: to run the hook, or to start the unit.
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
