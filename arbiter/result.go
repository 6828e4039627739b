package arbiter

import (
	"errors"
	"fmt"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// This file has the results of the arbiter: decisions with the reason of a refusal, notices to waiting clients, receipts of grants, and
// errors.

// Reason is the reason of a refusal.
type Reason uint8

// Reasons of refusals.
const (
	ReasonNone       Reason = iota
	ReasonOverBudget        // the budget of the process or job has too little left
	ReasonSharedFull        // a budget shared with other jobs (user, cgroup, rule) has no room
	ReasonDeviceFull        // the device has no room
	ReasonTooLarge          // larger than can ever fit
	ReasonStreams           // streams.max reached
	ReasonDeviceLost        // the device fell off the bus
	ReasonDenied            // a rule does not allow the amount
	ReasonNoLease           // no such lease, or its session has ended
	ReasonRange             // the count makes no sense
	ReasonBusy              // the request would have to wait, and its client or rule does not allow that; or the user has a claim already
	ReasonTimeout           // the request waited until its deadline
	ReasonCancelled         // the ticket was cancelled, or its process has ended
	ReasonDeadlock          // the request was chosen to break a deadlock
	ReasonSlots             // slots.max is reached, or another job has the device alone
	ReasonThreads           // more threads of the process have objects than the arbiter tracks
	ReasonCrowded           // the request may wait, but the queue is full: the client must ask again
	ReasonReading           // readings of the device decide: the daemon must ask again after the next one
	reasons
)

// String returns the reason as the event log shows it.
func (r Reason) String() string {
	names := [reasons]string{
		"", "over_budget", "shared_full", "device_full", "too_large", "streams", "device_lost",
		"denied", "no_lease", "range", "busy", "timeout", "cancelled", "deadlock", "slots", "threads", "crowded", "reading",
	}
	if int(r) < len(names) {
		return names[r]
	}
	return "unknown"
}

// MarshalText returns the reason as JSON shows it.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Notice is the present state of a waiting request.
type Notice struct {
	Position int // 1: first of the requests that the same limit refuses
	Waited   time.Duration
	Text     string // one line for users: what the request waits for, who holds that, and since when
}

// Result is the decision on a request of a lease, a job or a session. The Result of a refused request is also an error.
type Result struct {
	Ticket  TicketID // ticket of a request that has waited; 0: it was decided in the call that made it
	Waiting TicketID // ticket of a request that waits; [Arbiter.Decisions] returns the decision later; 0: it is decided
	Notice  *Notice  // state of a request that still waits; nil: it is decided

	Granted bool
	Receipt Receipt  // describes the grant, so that it can be taken back if the client never reads the reply
	Job     *JobInfo // the opened job; nil: the request was not for a job, or was refused

	Reason    Reason // reason of a refusal
	Requested accounting.Bytes
	Remaining accounting.Bytes // what would have been granted at the limit that refused
	Limit     accounting.Bytes // value of that limit
	Explain   string           // one line for users: what was refused, by which limit, and what to do
	First     bool             // first refusal of the process; the client prints it

	Current int // streams or contexts of the lease after the decision
	Max     int // the most streams that the lease may have

	Patience time.Duration // how long the client may ask again after ReasonCrowded; negative: without a limit
}

// Error returns the line for users.
func (r *Result) Error() string { return r.Explain }

// Receipt describes a grant, so that it can be taken back. The zero Receipt stands for no grant. A slot is not part of it: the slot goes
// back when its holder has given back everything else.
type Receipt struct {
	Lease  LeaseID
	What   RequestKind
	Bytes  accounting.Bytes
	Count  int // number of streams, contexts or holds
	Thread uint32
}

// Receipt returns the receipt of a granted request. It is zero if the request gives objects back or reports existing ones.
func (r *Request) Receipt() Receipt {
	switch {
	case r.What == WantsBytes:
		return Receipt{Lease: r.Lease, What: r.What, Bytes: r.Bytes, Thread: r.Thread}
	case r.Count > 0 && !r.Noticed:
		return Receipt{Lease: r.Lease, What: r.What, Count: r.Count, Thread: r.Thread}
	}
	return Receipt{}
}

// takes returns the amounts that a request adds to the sums, without the memory for its objects.
func (r *Request) takes() accounting.Amounts {
	if r.What == WantsStreams {
		return accounting.Amounts{accounting.Streams: accounting.Bytes(r.Count)}
	}
	if r.Managed {
		return accounting.Managed(r.Bytes)
	}
	return accounting.OnDevice(r.Bytes)
}

// Errors of requests that name something unknown, or an ID in use. They are wrapped in an error with the number or name.
var (
	ErrNoSession = errors.New("no such session")
	ErrNoJob     = errors.New("no such job")
	ErrNoRule    = errors.New("no such rule")
	ErrNoDevice  = errors.New("no such device")
	ErrExists    = errors.New("exists already")
)

// noSession and noDevice return the errors for an unknown session and an unknown device.
func noSession(id SessionID) error { return fmt.Errorf("session %d: %w", id, ErrNoSession) }
func noDevice(index int) error     { return fmt.Errorf("GPU %d: %w", index, ErrNoDevice) }

// refusal returns the refusal of a job or a session that wanted to start, or of a change of limits.
func refusal(why Reason, r *accounting.Refusal, text string) *Result {
	return &Result{Reason: why, Requested: r.Requested, Remaining: r.Remaining, Limit: r.Limit, Explain: text}
}
