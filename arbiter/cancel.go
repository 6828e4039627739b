package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// This file has the daemon's calls about a waiting request: its place, its process, and its cancellation. refuse.go does the work.

// Place returns the place of a waiting request. The daemon records it, so that the request keeps its place over a restart. The zero Place
// means that the ticket does not wait.
func (a *Arbiter) Place(id TicketID) Place {
	if t := a.tickets[id]; t != nil {
		return t.place
	}
	return Place{}
}

// Owner returns the process of a waiting ticket; for the ticket of a job, the runner. False: the ticket does not wait.
func (a *Arbiter) Owner(id TicketID) (of rules.Process, waits bool) {
	t := a.tickets[id]
	if t == nil {
		return of, false
	}
	return *t.process(), true
}

// Cancel refuses a waiting ticket with a reason. False: the ticket does not wait.
func (a *Arbiter) Cancel(now time.Time, id TicketID, why Reason) bool {
	t := a.tickets[id]
	if t == nil {
		return false
	}
	a.cancel(now, t, why)
	a.cycle(now)
	return true
}

// CancelAll cancels those tickets of ids that wait, and returns their number. It runs one cycle after all are cancelled, so that none of
// them is granted what the others release. As in CancelJob, requests outside the queue are refused when their clients ask again.
func (a *Arbiter) CancelAll(now time.Time, ids []TicketID, why Reason) (n int) {
	for _, id := range ids {
		if t := a.tickets[id]; t != nil {
			t.job.cancelled = now
			a.cancel(now, t, why)
			n++
		}
	}
	a.cycle(now)
	return n
}

// CancelJob cancels all tickets of a job and its processes, and returns their number. Requests that found no place in the queue are refused
// when their clients ask again.
func (a *Arbiter) CancelJob(now time.Time, id JobID) int {
	j := a.jobs[id]
	if j == nil {
		return 0
	}
	j.cancelled = now
	n := a.cancelOf(now, j, func(*ticket) bool { return true })
	a.cycle(now)
	return n
}
