package arbiter

import (
	"math/bits"

	"github.com/gpuarb/gpuarb/accounting"
)

// Defaults of a policy.
const (
	DefaultStreams                  = 256     // streams per lease and device
	DefaultSurplus accounting.Bytes = 4 << 20 // bytes of credit given beyond a request
)

// Size is an amount that may be a share of a device. Max comes first, then a
// PerMille above 0, then Bytes.
type Size struct {
	Bytes    accounting.Bytes
	PerMille uint32 // of each device
	Max      bool   // no limit
}

// Of returns the amount on a device of total bytes, rounded down: accounting.Max for no limit.
func (s Size) Of(total accounting.Bytes) accounting.Bytes {
	switch {
	case s.Max:
		return accounting.Max
	case s.PerMille == 0:
		return s.Bytes
	}
	hi, lo := bits.Mul64(uint64(total), uint64(s.PerMille))
	if hi >= 1000 {
		return accounting.Max
	}
	q, _ := bits.Div64(hi, lo, 1000)
	return accounting.Bytes(q)
}

// Absolute returns the size of b bytes; accounting.Max gives no limit.
func Absolute(b accounting.Bytes) Size {
	return Size{Bytes: b, Max: b == accounting.Max}
}

// Scope says who shares a rule's budget.
type Scope string

// The scopes.
const (
	ScopeJob     Scope = "job"
	ScopeProcess Scope = "process"
	ScopeUser    Scope = "user"
	ScopeCgroup  Scope = "cgroup"
)

// Limits is what a rule or the defaults give.
type Limits struct {
	Min        Size  // reserved; the zero Size is none
	Max        Size  // the budget
	StreamsMax int   // per lease; 0: DefaultStreams, below 1: 1
	Scope      Scope // "": ScopeJob
}

// Rule gives limits to the processes that it matches. What is nil falls back to
// the policy's defaults.
type Rule struct {
	Name       string // for messages, such as "rule 2"; may be empty
	Match      Match
	Min, Max   *Size
	StreamsMax *int // below 1 becomes 1
	Scope      *Scope
}

// DeviceMatch picks devices: every field that is set must match.
type DeviceMatch struct {
	Index  *int
	UUID   string
	PCI    string
	Vendor string
}

// DeviceRule configures the devices that it matches; the first match counts.
type DeviceRule struct {
	Match    DeviceMatch
	Reserve  Size // never granted to anybody
	SlotsMax int  // 0: no limit
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
}

// NoSurplus in Policy.Surplus turns the surplus off.
const NoSurplus = accounting.Max

// DefaultPolicy limits nothing but streams.
func DefaultPolicy() Policy {
	return Policy{
		Defaults: Limits{Max: Size{Max: true}, StreamsMax: DefaultStreams, Scope: ScopeJob},
		Surplus:  DefaultSurplus,
	}
}
