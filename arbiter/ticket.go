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

// Notice tells a waiting request how it stands.
type Notice struct {
	Position int // 1: next at the limit that refuses it
	Waited   time.Duration
	Text     string // one line for people: what it waits for, who holds that and since when
}

// spot is a device on which a ticket may be served, and what refuses it there.
type spot struct {
	device *device
	full   []full       // the limits that refuse it, the narrower ones first: shared budgets, permits, the bytes of the device
	asks   permit.Kinds // the permits to be taken there
	since  time.Time    // the job has held memory there since then, when this was judged; neverHeld: it holds none
}

// ticket is a request, also before it is known to have to wait.
type ticket struct {
	id       TicketID
	place    Place
	kind     What
	job      *job
	session  *session // nil for a job's
	lease    *lease   // nil for a job's and a session's
	thread   uint32
	bytes    accounting.Bytes // what it takes of its device, or of its budgets
	managed  bool             // bytes are of managed memory
	taken    accounting.Bytes // idle credit of its lease that was taken back to judge it, and goes back to the lease if it is refused at once
	count    int              // of streams, contexts or holds
	noWait   bool
	aside    bool // Request.Aside
	asked    bool // Request.Again
	priority int
	deadline time.Time // zero: none
	until    time.Time // its client is absent, and loses its place then; zero: the client is there
	left     bool      // its client is absent since a resume, and it blocks no other request

	spots  []spot
	any    bool                // one of the spots will do; else it needs all
	again  bool                // it came before, and has kept its place
	why    verdict             // as last judged
	short  *accounting.Refusal // with all idle credit counted in, where that was found not to suffice
	parked time.Time           // zero: it does not wait

	live     *ticket // in a copy of the books: the request that this one was copied from; nil in the books themselves
	turnOnly bool    // of a copy: nothing refused live but that others come first

	done   bool
	answer Result
	told   told
}

// told is what the waiting client knows.
type told struct {
	position int
	state    string
}

// alone is the one spot of a ticket that a lease has.
func (t *ticket) alone() *spot { return &t.spots[0] }

// shares yields the budgets that a ticket's process, or job, shares with others, the narrower ones first.
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

// onlyBehind reports that nothing refuses a ticket but that others come first.
func (t *ticket) onlyBehind() bool {
	if !t.any {
		return !t.lacks(full.isHard)
	}
	return slices.ContainsFunc(t.spots, func(s spot) bool { return !s.lacks(full.isHard) })
}

// result is what is known of a ticket at the end of the call that made it.
func (t *ticket) result() Result {
	if t.done {
		return t.answer
	}
	return t.counted(Result{Waiting: t.id})
}

// Decisions returns what became of waiting requests since the last call, and notices to requests that go on waiting, oldest first.
// Every ticket that a request was told of is decided exactly once, however it ends.
func (a *Arbiter) Decisions() []Result {
	decisions := a.decisions
	a.decisions = nil
	return decisions
}

// Place tells the place of a waiting request, to be kept for when it comes again; the
// zero Place for one that does not wait.
func (a *Arbiter) Place(id TicketID) Place {
	if t := a.tickets[id]; t != nil {
		return t.place
	}
	return Place{}
}

// Owner returns the process whose ticket it is; of a request for a job, the job's runner. False if the ticket does not wait.
func (a *Arbiter) Owner(id TicketID) (of rules.Process, waits bool) {
	t := a.tickets[id]
	if t == nil {
		return of, false
	}
	return *t.process(), true
}

// process is whose request it is.
func (t *ticket) process() *rules.Process {
	if t.session != nil {
		return &t.session.process
	}
	return &t.job.request.Process
}

// name is how people know who waits.
func (t *ticket) name() string {
	if t.session != nil {
		return t.session.name()
	}
	return t.job.name()
}

// Cancel takes a ticket out of the queue and decides it with the reason; false when it
// does not wait.
func (a *Arbiter) Cancel(now time.Time, id TicketID, why Reason) bool {
	t := a.tickets[id]
	if t == nil {
		return false
	}
	a.cancel(now, t, why)
	a.cycle(now)
	return true
}

// CancelAll cancels those of the tickets that wait, and returns how many they were. It runs one cycle after all of them are cancelled, so
// that none of them is granted what the others leave. As CancelJob it refuses requests of their jobs for which there was no place.
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

// CancelJob cancels all tickets of a job, its own among them, and returns how many they were. Its requests for which there was no place in
// the queue are refused when their clients ask again.
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

// cancelOf cancels those of a job's tickets that are meant, and returns how many they were.
func (a *Arbiter) cancelOf(now time.Time, j *job, meant func(*ticket) bool) (n int) {
	for _, t := range slices.Clone(j.tickets) {
		if meant(t) {
			a.cancel(now, t, ReasonCancelled)
			n++
		}
	}
	return n
}

// cancel decides a ticket without its having been served.
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

// eventOf is an event about a ticket.
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

// Threads tells how many threads of a client ever made an intercepted call and live;
// 0: not known.
func (a *Arbiter) Threads(now time.Time, id SessionID, n int) {
	if s := a.sessions[id]; s != nil && s.threads != n {
		s.threads = max(0, n)
		a.changed()
		a.cycle(now)
	}
}
