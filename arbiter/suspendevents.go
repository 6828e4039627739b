package arbiter

import "time"

// This file has the events about the residence of jobs, and counts their results. Each such event lets the daemon record the suspension again.
// returns.go and suspend.go call it for each change of a residence.

// suspensionEvent records an event about the residence of a job, with the bytes that the job gave back and the time that it took. The event
// names the waiting request or the user that asked, if there is one.
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

// suspensionChanged notes that the suspension of a job has to be recorded again.
func (a *Arbiter) suspensionChanged(j *job) {
	if a.suspensionsChanged == nil {
		a.suspensionsChanged = make(map[JobID]struct{})
	}
	a.suspensionsChanged[j.id] = struct{}{}
}
