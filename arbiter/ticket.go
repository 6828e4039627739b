package arbiter

import (
	"fmt"
	"time"
)

// TicketID names a request that waits. 0 is none. Never reused.
type TicketID uint64

// Place is a waiting request's place in the queue: the order of its arrival and when
// that was. A request that comes again with it, after a restart of the daemon or on a new
// connection, stands where it stood. The zero Place is a new one.
type Place struct {
	Arrival uint64
	Since   time.Time
}

// DecisionKind says what a decision is.
type DecisionKind uint8

// The kinds of decisions.
const (
	DecisionDone   DecisionKind = iota // the request is decided, its ticket gone
	DecisionNotice                     // something has changed for one that waits
)

// Decision is what became of a ticket. Of Alloc, Stream, Context, Job and Session the
// one is set that was asked for; Refusal instead of the last two when it is refused.
type Decision struct {
	Ticket  TicketID
	Kind    DecisionKind
	Alloc   *Outcome
	Stream  *StreamOutcome
	Context *ContextOutcome
	Job     *JobInfo
	Session *SessionInfo
	Refusal *Refusal
	Notice  Notice
}

// Notice tells a waiting request how it stands.
type Notice struct {
	Position int // 1: next at the limit that refuses it
	Waited   time.Duration
	Text     string // one line for people: what it waits for, who holds that and since when
}

// Decisions returns what became of tickets since the last call, oldest first. Every
// ticket has exactly one DecisionDone, however it ends.
func (a *Arbiter) Decisions() []Decision { return nil }

// Place tells the place of a waiting request, to be kept for when it comes again; the
// zero Place for one that does not wait.
func (a *Arbiter) Place(TicketID) Place { return Place{} }

// Notice tells how a ticket stands at this moment.
func (a *Arbiter) Notice(time.Time, TicketID) Notice { return Notice{} }

// Cancel takes a ticket out of the queue and decides it with the reason; false when it
// does not wait.
func (a *Arbiter) Cancel(time.Time, TicketID, Reason) bool { return false }

// CancelJob cancels all tickets of a job, its own among them, and returns how many they were.
func (a *Arbiter) CancelJob(time.Time, JobID) int { return 0 }

// Owner tells whose a ticket is: the user, and the job (0 for a bare process). False
// when it does not wait.
func (a *Arbiter) Owner(TicketID) (uid uint32, id JobID, waits bool) { return 0, 0, false }

// Threads tells how many threads of a client ever made an intercepted call and live;
// 0: not known.
func (a *Arbiter) Threads(time.Time, SessionID, int) {}

// ReleaseJob takes back what a job holds beyond its processes: claim, slots and
// reservation. Unknown jobs are ignored.
func (a *Arbiter) ReleaseJob(time.Time, JobID) {}

// SetSlots sets slots.max of a device: 0 for no limit. ErrNoDevice, ErrRange.
func (a *Arbiter) SetSlots(_ time.Time, device, most int) error {
	d := a.device(device)
	if d == nil {
		return noDevice(device)
	}
	if most < 0 {
		return fmt.Errorf("slots.max of %d: %w", most, ErrRange)
	}
	d.rule.SlotsMax = most
	return nil
}

// Makers tells who made the objects of a lease, for RestoredLease.Makers; nil where
// slots are not threads'.
func (a *Arbiter) Makers(LeaseID) []Maker { return nil }

// Due returns when Tick has something to do that will not come about by itself; the zero
// time: nothing.
func (a *Arbiter) Due() time.Time { return time.Time{} }
