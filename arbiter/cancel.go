package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// This file has the calls of the daemon about a waiting request: its place, its owner, and its cancellation.

// Place returns the place of a waiting request, which the daemon records so that the request gets it again after a restart. The zero Place: the
// ticket does not wait.
func (a *Arbiter) Place(id TicketID) Place {
	if t := a.tickets[id]; t != nil {
		return t.place
	}
	return Place{}
}

// Owner returns the process that a waiting ticket belongs to; for a job's ticket the job's runner. False: the ticket does not wait.
func (a *Arbiter) Owner(id TicketID) (of rules.Process, waits bool) {
	t := a.tickets[id]
	if t == nil {
		return of, false
	}
	return *t.process(), true
}

// Cancel takes a ticket out of the queue and refuses it with a reason. False: it does not wait.
func (a *Arbiter) Cancel(now time.Time, id TicketID, why Reason) bool {
	t := a.tickets[id]
	if t == nil {
		return false
	}
	a.cancel(now, t, why)
	a.cycle(now)
	return true
}

// CancelAll cancels the tickets of a list that wait, and returns how many did. It runs one cycle after all are cancelled, so that none of them is
// granted what the others leave. As in CancelJob, requests of their jobs for which there was no place are refused when their clients ask again.
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

// CancelJob cancels all tickets of a job and its processes, and returns how many there were. Requests for which there was no place in the
// queue are refused when their clients ask again.
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
