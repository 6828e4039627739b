package arbiter

import "time"

// This file makes the events about the residence of jobs, and counts them. It also collects the jobs whose suspension the daemon must
// record again. Suspensions returns those to the daemon. After each change of a residence, suspend.go and returns.go call suspensionEvent.

// suspensionEvent adds an event about the residence of a job, and has the suspension recorded again. The event says how many bytes the job
// has given back and not taken again (0: the job is resident), and in took how long the change lasted. It names the waiting request or the
// user that asked for the change, if there is one.
func (a *Arbiter) suspensionEvent(now time.Time, j *job, kind Kind, took time.Duration, text string) {
	s := j.suspension
	_, gave, _ := a.Residence(j.id)
	e := Event{Time: now, Kind: kind, Device: -1, Bytes: gave, TookMs: max(0, took.Milliseconds()), Text: j.owned() + " " + text}
	e.about(&j.request.Process)
	e.in(j)
	if e.Ticket = s.waiter; e.Ticket != 0 && a.tickets[e.Ticket] != nil {
		e.WaitedMs = max(0, now.Sub(a.tickets[e.Ticket].place.Since).Milliseconds())
	}
	if s.by != nil {
		e.By, e.ByPID = &s.by.UID, s.by.PID
	}
	switch kind {
	case EventSuspended:
		a.stats.Suspended++
	case EventNotGiven:
		a.stats.NotSuspended++
	case EventResumed:
		a.stats.Resumed++
	case EventStuck:
		a.stats.Stuck++
	}
	a.event(e)
	a.suspensionChanged(j)
}

// suspensionChanged adds a job to those whose suspension the next call of Suspensions returns.
func (a *Arbiter) suspensionChanged(j *job) {
	if a.suspensionsChanged == nil {
		a.suspensionsChanged = make(map[JobID]struct{})
	}
	a.suspensionsChanged[j.id] = struct{}{}
}
