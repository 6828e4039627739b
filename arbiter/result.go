package arbiter

import (
	"errors"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// Reason says why something was refused.
type Reason uint8

// The reasons.
const (
	ReasonNone       Reason = iota
	ReasonOverBudget        // more than the budget of the process or job has left
	ReasonSharedFull        // a budget shared with others (user, cgroup, rule) has no room
	ReasonDeviceFull        // the device has no room
	ReasonTooLarge          // larger than could ever fit
	ReasonStreams           // streams.max reached
	ReasonDeviceLost        // the device fell off the bus
	ReasonDenied            // asked for more than a rule allows
	ReasonNoLease           // no such lease, or its session has ended
	ReasonRange             // a count that makes no sense
	ReasonBusy              // it would have to wait, and is not to
	ReasonTimeout           // it waited as long as it may
	ReasonCancelled         // its ticket was cancelled, or its process is gone
	ReasonDeadlock          // it was the youngest of a circle of waiters
	ReasonSlots             // slots.max is reached, or the device is another's alone
	ReasonThreads           // more threads hold something than are remembered
	ReasonCrowded           // it may wait, and there is no place in the queue: the client asks again
	reasons
)

// String returns the reason as the event log spells it.
func (r Reason) String() string {
	names := [reasons]string{
		"", "over_budget", "shared_full", "device_full", "too_large", "streams", "device_lost",
		"denied", "no_lease", "range", "busy", "timeout", "cancelled", "deadlock", "slots", "threads", "crowded",
	}
	if int(r) < len(names) {
		return names[r]
	}
	return "unknown"
}

// MarshalText spells the reason in JSON.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Result is the decision on a request of a lease, a job or a process. The Result of a refused request is also an error.
type Result struct {
	Ticket  TicketID // of a request that has waited; 0: it was decided when it was made
	Waiting TicketID // the request waits, and the decision comes later, out of [Arbiter.Decisions]; 0: it is decided
	Notice  *Notice  // how a request stands that goes on waiting; nil: it is decided

	Granted bool
	Receipt Receipt  // what was granted, to be taken back if the client never hears of it
	Job     *JobInfo // the job that was asked for; nil: it was not granted

	Reason    Reason // of a refusal
	Requested accounting.Bytes
	Remaining accounting.Bytes // what would have been granted at the limit that refused
	Limit     accounting.Bytes // that limit
	Holders   string           // the largest holders at that limit
	Explain   string           // one line for people: what, where, and what to do
	First     bool             // the first refusal of a process: to be printed

	Current int // streams, or contexts, that there are, whatever was decided
	Max     int // streams that there may be

	Patience time.Duration // of ReasonCrowded: how long the client may go on asking; negative: without end
}

// Error returns the line for people of a refusal.
func (r *Result) Error() string { return r.Explain }

// Receipt is what a request was granted; the zero Receipt is nothing. Its slot goes back with the last of
// what its holder has.
type Receipt struct {
	Lease  LeaseID
	What   What
	Bytes  accounting.Bytes
	Count  int // of streams, contexts or holds
	Thread uint32
}

// Receipt is that of a request that is granted: nothing, where it gives back or tells what is there.
func (r *Request) Receipt() Receipt {
	switch {
	case r.What == WantsBytes:
		return Receipt{Lease: r.Lease, What: r.What, Bytes: r.Bytes, Thread: r.Thread}
	case r.Count > 0 && !r.Noticed:
		return Receipt{Lease: r.Lease, What: r.What, Count: r.Count, Thread: r.Thread}
	}
	return Receipt{}
}

// Errors of requests that are wrong rather than refused. They come wrapped in
// the number or name in question.
var (
	ErrNoSession = errors.New("no such session")
	ErrNoJob     = errors.New("no such job")
	ErrNoRule    = errors.New("no such rule")
	ErrNoDevice  = errors.New("no such device")
	ErrExists    = errors.New("exists already")
)
