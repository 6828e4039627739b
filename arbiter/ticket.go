package arbiter

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file has the ticket, the arbiter's record of a request, and the calls that cancel tickets and tell of them. cycle.go decides tickets.

// Notice says how a waiting request stands.
type Notice struct {
	Position int // 1: next at the limit that refuses it
	Waited   time.Duration
	Text     string // one line for users: what the request waits for, which program holds that, and since when
}

// spot is a device on which a ticket may be served, and what refuses it there.
type spot struct {
	device *device
	full   []full       // the limits that refuse the ticket there, the narrower ones first: shared budgets, permits, the bytes of the device
	asks   permit.Kinds // the permits that the ticket would take there
	since  time.Time    // since when the job had held memory there when the ticket was last judged; neverHeld: it held none
}

// ticket is a request that is being decided or waits.
type ticket struct {
	id       TicketID
	place    Place
	kind     What
	job      *job
	session  *session // nil: a job asks
	lease    *lease   // nil: a job or a session asks
	thread   uint32
	bytes    accounting.Bytes // bytes that it adds to the sums of its device or its budgets
	managed  bool             // bytes are managed memory
	taken    accounting.Bytes // idle credit of its lease that was taken back to judge it, and goes back to the lease if it is refused at once
	count    int              // number of streams, contexts or holds
	noWait   bool
	aside    bool // Request.Aside
	asked    bool // Request.Again
	priority int
	deadline time.Time // zero: none
	until    time.Time // its client is absent, and loses its place then; zero: the client is there
	left     bool      // its client is absent since a resume, and it blocks no other request

	spots  []spot
	any    bool                // one of the spots is enough; false: the ticket needs all
	again  bool                // the request was made before, and has kept its place
	why    verdict             // the last verdict
	short  *accounting.Refusal // the limit at which even all idle credit did not make room; nil: none was found
	parked time.Time           // when it began to wait; zero: it does not wait

	live     *ticket // in a copy of the books: the request of which this is a copy; nil in the books themselves
	turnOnly bool    // in a copy: only earlier requests block live

	done   bool
	answer Result
	told   told
}

// told is the state of a ticket that was last sent to the waiting client.
type told struct {
	position int
	state    string // stateOf
}

// alone returns the only spot of a lease's ticket.
func (t *ticket) alone() *spot { return &t.spots[0] }

// shares yields the shared budgets above a ticket's process, or its job, the narrower ones first.
func (t *ticket) shares(yield func(*shared) bool) {
	if t.session != nil {
		t.session.shares(yield)
		return
	}
	t.job.shares(yield)
}

// on reports whether a ticket may be served on a device.
func (t *ticket) on(d *device) bool {
	return slices.ContainsFunc(t.spots, func(s spot) bool { return s.device == d })
}

// lacks reports whether a limit of this sort refuses a ticket on one of its devices.
func (t *ticket) lacks(sort func(full) bool) bool {
	return slices.ContainsFunc(t.spots, func(s spot) bool { return s.lacks(sort) })
}

// lacks reports whether a limit of this sort refuses a ticket on a device.
func (s *spot) lacks(sort func(full) bool) bool { return slices.ContainsFunc(s.full, sort) }

// onlyBehind reports whether a ticket fits, so that only earlier requests block it. If one device is enough for it, it must fit on one.
func (t *ticket) onlyBehind() bool {
	if !t.any {
		return !t.lacks(full.isHard)
	}
	return slices.ContainsFunc(t.spots, func(s spot) bool { return !s.lacks(full.isHard) })
}

// result returns the result of a request at the end of the call that made it: the decision, or that it waits.
func (t *ticket) result() Result {
	if t.done {
		return t.answer
	}
	return t.counted(Result{Waiting: t.id})
}

// Decisions returns the decisions on waiting requests since the last call, and the notices for requests that still wait, oldest first.
// Each ticket that was returned as waiting is decided exactly once.
func (a *Arbiter) Decisions() []Result {
	decisions := a.decisions
	a.decisions = nil
	return decisions
}

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

// process returns the process that made the request.
func (t *ticket) process() *rules.Process {
	if t.session != nil {
		return &t.session.process
	}
	return &t.job.request.Process
}

// name returns the name, for users, of the program or job that waits.
func (t *ticket) name() string {
	if t.session != nil {
		return t.session.name()
	}
	return t.job.name()
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

// cancelOf cancels the tickets of a job for which meant returns true, and returns how many there were.
func (a *Arbiter) cancelOf(now time.Time, j *job, meant func(*ticket) bool) (n int) {
	for _, t := range slices.Clone(j.tickets) {
		if meant(t) {
			a.cancel(now, t, ReasonCancelled)
			n++
		}
	}
	return n
}

// cancel refuses a waiting ticket because of its deadline or on request, with an event. The caller runs the cycle.
func (a *Arbiter) cancel(now time.Time, t *ticket, why Reason) {
	a.changed()
	kind, text := EventCancelled, wording.Cancelled
	if why == ReasonTimeout {
		kind, text = EventTimeout, wording.TimedOut
		if held := a.heldAt(now, t.obstacle()); held != "" {
			text += "; " + held
		}
		a.stats.Timeouts++
	} else {
		a.stats.Cancelled++
	}
	text = fmt.Sprintf(wording.NotServed, t.name(), a.requestText(t), t.gpu(), wording.Span(now.Sub(t.place.Since)), text)
	a.event(a.eventOf(now, t, kind, text))
	a.refuseTicket(now, t, why, text)
}

// eventOf returns an event about a ticket.
func (a *Arbiter) eventOf(now time.Time, t *ticket, kind Kind, text string) Event {
	e := Event{Time: now, Kind: kind, Device: -1, What: t.kind.asked(), Ticket: t.id, Reason: t.why.reason, Requested: a.wantsBytes(t),
		WaitedMs: max(0, now.Sub(t.place.Since).Milliseconds()), Text: text}
	e.about(t.process())
	e.in(t.job)
	if !t.any && len(t.spots) > 0 {
		e.Device = t.spots[0].device.Index
	}
	if t.lease != nil {
		e.Lease = t.lease.id
	}
	return e
}

// Threads sets how many live threads of a client have made an intercepted call; 0: not known.
func (a *Arbiter) Threads(now time.Time, id SessionID, n int) {
	if s := a.sessions[id]; s != nil && s.threads != n {
		s.threads = max(0, n)
		a.changed()
		a.cycle(now)
	}
}
