package arbiter

import (
	"errors"
	"fmt"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// This file has what the arbiter answers: results with the reason of a refusal, notices for requests that wait, receipts of grants, and errors.

// Reason says why something was refused.
type Reason uint8

// The reasons.
const (
	ReasonNone       Reason = iota
	ReasonOverBudget        // the budget of the process or job has too little left
	ReasonSharedFull        // a budget shared with other jobs (user, cgroup, rule) has no room
	ReasonDeviceFull        // the device has no room
	ReasonTooLarge          // larger than could ever fit
	ReasonStreams           // streams.max reached
	ReasonDeviceLost        // the device fell off the bus
	ReasonDenied            // a rule does not allow the amount
	ReasonNoLease           // no such lease, or its session has ended
	ReasonRange             // a count that makes no sense
	ReasonBusy              // it would have to wait, and its client or rule does not let it; or the user has a claim already
	ReasonTimeout           // the request waited as long as it may
	ReasonCancelled         // the ticket was cancelled, or its process is gone
	ReasonDeadlock          // the request was chosen to break a deadlock
	ReasonSlots             // slots.max is reached, or another job has the device alone
	ReasonThreads           // more threads of the process hold something than the arbiter keeps track of
	ReasonCrowded           // the request may wait, but the queue is full: the client asks again
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

// Notice says how a waiting request stands.
type Notice struct {
	Position int // 1: next at the limit that refuses it
	Waited   time.Duration
	Text     string // one line for users: what the request waits for, which program holds that, and since when
}

// Result is the decision on a request of a lease, a job or a process. The Result of a refused request is also an error.
type Result struct {
	Ticket  TicketID // ticket of a request that has waited; 0: it was decided when it was made
	Waiting TicketID // ticket of a request that waits, whose decision [Arbiter.Decisions] returns later; 0: it is decided
	Notice  *Notice  // how a request stands that still waits; nil: it is decided

	Granted bool
	Receipt Receipt  // the grant, to be taken back if the client never reads the reply
	Job     *JobInfo // the job that was asked for; nil: the request was not for a job, or was refused

	Reason    Reason // reason of a refusal
	Requested accounting.Bytes
	Remaining accounting.Bytes // what would have been granted at the limit that refused
	Limit     accounting.Bytes // value of that limit
	Holders   string           // the largest holders at that limit
	Explain   string           // one line for users: what was refused, by which limit, and what to do
	First     bool             // this is the first refusal of the process, which its client prints

	Current int // streams or contexts of the lease after the decision
	Max     int // the most streams that the lease may have

	Patience time.Duration // how long the client may ask again after ReasonCrowded; negative: without end
}

// Error returns the line for users of a refusal.
func (r *Result) Error() string { return r.Explain }

// Receipt describes a grant, so that it can be taken back; the zero Receipt: nothing was granted. A slot is not part of it: the slot
// goes back when its holder has given back all else.
type Receipt struct {
	Lease  LeaseID
	What   What
	Bytes  accounting.Bytes
	Count  int // number of streams, contexts or holds
	Thread uint32
}

// Receipt returns the receipt for a granted request. It is zero if the request gives objects back or only reports them.
func (r *Request) Receipt() Receipt {
	switch {
	case r.What == WantsBytes:
		return Receipt{Lease: r.Lease, What: r.What, Bytes: r.Bytes, Thread: r.Thread}
	case r.Count > 0 && !r.Noticed:
		return Receipt{Lease: r.Lease, What: r.What, Count: r.Count, Thread: r.Thread}
	}
	return Receipt{}
}

// takes returns the amounts that a request adds to the sums, without the memory that its objects cost.
func (r *Request) takes() accounting.Amounts {
	if r.What == WantsStreams {
		return accounting.Amounts{accounting.Streams: accounting.Bytes(r.Count)}
	}
	if r.Managed {
		return accounting.Managed(r.Bytes)
	}
	return accounting.OnDevice(r.Bytes)
}

// Errors of requests that name something unknown, or an ID that is in use. They come wrapped in a text with the number or name.
var (
	ErrNoSession = errors.New("no such session")
	ErrNoJob     = errors.New("no such job")
	ErrNoRule    = errors.New("no such rule")
	ErrNoDevice  = errors.New("no such device")
	ErrExists    = errors.New("exists already")
)

func noSession(id SessionID) error { return fmt.Errorf("session %d: %w", id, ErrNoSession) }
func noDevice(index int) error     { return fmt.Errorf("GPU %d: %w", index, ErrNoDevice) }

// refusal makes the error of what does not begin, or is not changed.
func refusal(why Reason, r *accounting.Refusal, text string) *Result {
	return &Result{Reason: why, Requested: r.Requested, Remaining: r.Remaining, Limit: r.Limit, Explain: text}
}
