package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// Defaults of a policy.
const (
	DefaultStreams                  = 256     // streams per lease and device
	DefaultSurplus accounting.Bytes = 4 << 20 // bytes of credit given beyond a request

	DefaultWaitTimeout   = 10 * time.Minute
	DefaultAgeAfter      = time.Minute
	DefaultDeadlockGrace = 2 * time.Second
)

// Scope says who shares a rule's budget.
type Scope string

// The scopes.
const (
	ScopeJob     Scope = "job"
	ScopeProcess Scope = "process"
	ScopeUser    Scope = "user"
	ScopeCgroup  Scope = "cgroup"
	ScopeRule    Scope = "rule"   // all that the rule matches
	ScopeThread  Scope = "thread" // of slots alone
)

// OnFull says what becomes of a request beyond memory.min that finds no room.
type OnFull string

// The ways.
const (
	OnFullDeny OnFull = "deny"
	OnFullWait OnFull = "wait"
)

// NoTimeout as a wait_timeout waits without end.
const NoTimeout time.Duration = -1

// Limits is what a rule or the defaults give.
type Limits struct {
	Min        accounting.Size // reserved; the zero Size is none
	Max        accounting.Size // the budget
	StreamsMax int             // per lease; 0: DefaultStreams, below 1: 1
	Scope      Scope           // "": ScopeJob

	OnFull        OnFull            // "": OnFullDeny
	WaitTimeout   time.Duration     // 0: DefaultWaitTimeout
	WaitAfter     int               // so many refusals of a burst come at once before a request waits
	Priority      int               // higher is served first
	SlotScope     Scope             // whose one slot is: ScopeJob, ScopeProcess, ScopeThread; "": as the device's rule says
	StreamReserve accounting.Bytes  // charged for each stream
	HostMax       *accounting.Bytes // pinned host memory that each process may hold; nil: no limit
}

// Rule gives limits to the processes that it matches. What is nil falls back to
// the policy's defaults.
type Rule struct {
	Name       string // for messages, such as "rule 2"; may be empty
	Key        string // the name that it was given: it is the same rule as before where that is the same; "": where Match is
	Match      Match
	Min, Max   *accounting.Size
	StreamsMax *int // below 1 becomes 1
	Scope      *Scope

	OnFull        *OnFull
	WaitTimeout   *time.Duration
	WaitAfter     *int
	Priority      *int
	SlotScope     *Scope
	StreamReserve *accounting.Bytes
	HostMax       *accounting.Bytes
}

// DeviceMatch picks devices: every field that is set must match.
type DeviceMatch struct {
	Index  *int
	UUID   string
	PCI    string
	Vendor string
}

// Matches reports whether d is one of those that m picks.
func (m DeviceMatch) Matches(d Device) bool {
	return (m.Index == nil || *m.Index == d.Index) && (m.UUID == "" || m.UUID == d.UUID) &&
		(m.PCI == "" || m.PCI == d.PCI) && (m.Vendor == "" || m.Vendor == d.Vendor)
}

// DeviceRule configures the devices that it matches; the first match counts.
type DeviceRule struct {
	Match    DeviceMatch
	Reserve  accounting.Size // never granted to anybody
	SlotsMax int             // 0: no limit

	SlotScope      Scope            // "": ScopeJob
	ContextReserve *accounting.Size // nil: as Policy.ContextReserve
}

// Policy is the configuration in force.
type Policy struct {
	Defaults Limits
	Rules    []Rule // the first that matches decides
	Devices  []DeviceRule
	// Surplus is how much credit is given beyond a request when there is room;
	// 0: DefaultSurplus, NoSurplus: none.
	Surplus accounting.Bytes
	// ChargeOverhead counts a lease's overhead against its own budget, instead
	// of the device's capacity.
	ChargeOverhead bool
	// AgeAfter is what it takes to wait for one more of priority, and for a job that
	// holds nothing yet to set bytes aside against those that run; 0: DefaultAgeAfter.
	AgeAfter time.Duration
	// DeadlockGrace is how long a circle of waiters stands in which something may yet
	// move; 0: DefaultDeadlockGrace.
	DeadlockGrace time.Duration
	// ContextReserve is the first guess of what a context costs; a sixteenth of the
	// device at most. The zero Size: nothing, until one was seen.
	ContextReserve accounting.Size
	// ContextGuess is what a reservation assumes that its context costs where neither
	// ContextReserve nor a context that was seen tells it.
	ContextGuess accounting.Size
}

// NoSurplus in Policy.Surplus turns the surplus off.
const NoSurplus = accounting.Max

// DefaultPolicy limits nothing but streams.
func DefaultPolicy() Policy {
	return Policy{
		Defaults: Limits{Max: accounting.Size{Max: true}, StreamsMax: DefaultStreams, Scope: ScopeJob},
		Surplus:  DefaultSurplus,
	}
}
