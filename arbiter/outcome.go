package arbiter

import (
	"errors"

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
	ReasonCrowded           // the user, or the process, has as many requests waiting as it may
)

// String returns the reason as the event log spells it.
func (r Reason) String() string {
	names := [...]string{
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

// Outcome is the decision on an AllocRequest. With Granted or Waiting, nothing else is set.
type Outcome struct {
	Granted   bool
	Waiting   TicketID // the decision comes later, out of [Arbiter.Decisions]
	Reason    Reason
	Requested accounting.Bytes
	Remaining accounting.Bytes // what would have been granted at the limit that refused
	Limit     accounting.Bytes // that limit
	Holders   string           // the largest holders at that limit
	Explain   string           // one line for people
	First     bool             // the first refusal of a process: to be printed
}

// StreamOutcome is the decision on streams. Current and Max are always set.
type StreamOutcome struct {
	Granted bool
	Waiting TicketID
	Reason  Reason
	Current int
	Max     int
	Explain string
	First   bool
}

// ContextOutcome is the decision on contexts. Current is always set.
type ContextOutcome struct {
	Granted   bool
	Waiting   TicketID
	Reason    Reason
	Current   int
	Requested accounting.Bytes // what the contexts were to cost
	Remaining accounting.Bytes
	Explain   string
	First     bool
}

// Refusal is the error of a request that policy refuses.
type Refusal struct {
	Reason    Reason
	Requested accounting.Bytes
	Remaining accounting.Bytes
	Limit     accounting.Bytes
	Explain   string // one line for people: what, where, and what to do
}

// Error returns the line for people.
func (r *Refusal) Error() string { return r.Explain }

// Errors of requests that are wrong rather than refused. They come wrapped in
// the number or name in question.
var (
	ErrNoSession  = errors.New("no such session")
	ErrNoJob      = errors.New("no such job")
	ErrNoLease    = errors.New("no such lease")
	ErrNoDevice   = errors.New("no such device")
	ErrRange      = errors.New("out of range")
	ErrPermission = errors.New("not permitted")
	ErrExists     = errors.New("exists already")
)
