package arbiter

import (
	"cmp"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file has the events about the residence of jobs, and counts their results. Each such event lets the daemon record the suspension again. suspend.go calls it for each change of a residence. It also
// finds the jobs that are asked to make room for a waiting request, which notice.go and snapshotrows.go show.

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

// askedFor returns the jobs that are asked to make room for waiting requests, by request and number.
func (a *Arbiter) askedFor() map[TicketID][]*job {
	var asked map[TicketID][]*job
	for _, j := range a.jobs {
		if j.residence() != Suspending || j.suspension.waiter == 0 {
			continue
		}
		if asked == nil {
			asked = make(map[TicketID][]*job)
		}
		asked[j.suspension.waiter] = append(asked[j.suspension.waiter], j)
	}
	for _, all := range asked {
		slices.SortFunc(all, func(x, y *job) int { return cmp.Compare(x.id, y.id) })
	}
	return asked
}

// askedText returns the names of the jobs that are asked to make room for a request, for its program; "": none is asked.
func (m *queueView) askedText(t *ticket) string {
	all, within := m.asked[t.id], t.namesWithin()
	var names []string
	for _, j := range all {
		if len(names) < namedHolders && within.shows(j) {
			names = append(names, j.owned())
		}
	}
	return wording.List(names, len(all))
}
