package rules

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// Defaults of a policy.
const (
	DefaultStreams                  = 256     // streams per lease and device
	DefaultSurplus accounting.Bytes = 4 << 20 // bytes of credit given beyond a request

	DefaultWaitTimeout   = 10 * time.Minute
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

// Settings is what a rule or the defaults give.
type Settings struct {
	Min        accounting.Size // reserved; the zero Size is none
	Max        accounting.Size // the budget
	StreamsMax int             // per lease; 0: DefaultStreams, below 1: 1
	Scope      Scope           // "": ScopeJob

	OnFull        OnFull            // "": OnFullDeny
	WaitTimeout   time.Duration     // 0: DefaultWaitTimeout
	WaitAfter     int               // so many refusals of a burst come at once before a request waits
	AgeAfter      time.Duration     // a wait after which a request blocks jobs that have held memory for longer; 0 or NoTimeout: it never does
	Priority      int               // higher is served first
	SlotScope     Scope             // whose one slot is: ScopeJob, ScopeProcess, ScopeThread; "": as the device's rule says
	StreamReserve accounting.Bytes  // charged for each stream
	HostMax       *accounting.Bytes // pinned host memory that each process may hold; nil: no limit
	NoExports     bool              // a job's programs are given the library without exported driver functions
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
	AgeAfter      *time.Duration
	Priority      *int
	SlotScope     *Scope
	StreamReserve *accounting.Bytes
	HostMax       *accounting.Bytes
	NoExports     *bool
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
	return (m.Index == nil || *m.Index == d.Index && d.IsGPU()) && (m.UUID == "" || m.UUID == d.UUID) &&
		(m.PCI == "" || m.PCI == d.PCI) && (m.Vendor == "" || m.Vendor == d.Vendor)
}

// DeviceRule configures the devices that it matches; the first match counts.
type DeviceRule struct {
	Match    DeviceMatch
	Reserve  accounting.Size // never granted to anybody
	SlotsMax int             // 0: no limit

	SlotScope      Scope            // "": ScopeJob
	ContextReserve *accounting.Size // nil: as Policy.ContextReserve
	Memory         accounting.Bytes // total memory that the device counts as having; 0: what the driver says
	Also           []string         // drivers that compute on the processor, and are counted here: of CPUDrivers
}

// CPUDrivers are the drivers that compute on the processor and can be counted on another device. Programs know them
// by the same names.
var CPUDrivers = []string{"pocl", "llvmpipe"}

// Terms are what a rule, or the defaults, give to a process. All jobs under the rule share them, and nothing changes them.
type Terms struct {
	Settings
	Name string // for messages: `rule 2 (user student)`, or "the defaults"
	Key  Key
	ID   uint64  // number of the rule in messages, which have no room for its name; 0: the defaults
	Live *Limits // what was changed of memory.max and streams.max since the policy was put in force

	says uint64 // hash of what the configuration gives
}

// Key says which rule it is, wherever in the configuration it stands: one that has a
// name goes by that, another by what it matches. The zero Key is the defaults'.
type Key struct {
	Name  string
	match Match
}

// String is how people call the rule.
func (k Key) String() string {
	switch {
	case k.Name != "":
		return "rule " + k.Name
	case k.match == (Match{}):
		return "the defaults"
	}
	return fmt.Sprintf(wording.RuleFor, wording.Plain(k.match.String()))
}

// ID returns the number that the rule gets unless another rule has it: see [Terms.ID].
func (k Key) ID() uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s\x00%s", k.Name, k.match)
	return h.Sum64()
}

// key is how the rule is known after a reload.
func (r *Rule) key() Key {
	if r.Key == "" {
		return Key{match: r.Match}
	}
	return Key{Name: r.Key}
}

// With is s with what a rule gives in its place.
func (s Settings) With(rule *Rule) Settings {
	put(&s.Min, rule.Min)
	put(&s.Max, rule.Max)
	put(&s.StreamsMax, rule.StreamsMax)
	put(&s.Scope, rule.Scope)
	put(&s.OnFull, rule.OnFull)
	put(&s.WaitTimeout, rule.WaitTimeout)
	put(&s.WaitAfter, rule.WaitAfter)
	put(&s.AgeAfter, rule.AgeAfter)
	put(&s.Priority, rule.Priority)
	put(&s.SlotScope, rule.SlotScope)
	put(&s.StreamReserve, rule.StreamReserve)
	put(&s.NoExports, rule.NoExports)
	if rule.HostMax != nil {
		s.HostMax = rule.HostMax
	}
	return s
}

// put lets a setting that is given take the place of another.
func put[T any](to, given *T) {
	if given != nil {
		*to = *given
	}
}

// normal returns t with values put right that make no sense.
func (t Terms) normal() *Terms {
	t.StreamsMax = max(1, t.StreamsMax)
	if t.Min.Max { // "max" reserves all that there is
		t.Min = accounting.Size{PerMille: 1000}
	}
	return &t
}

// hash returns a number made of what the configuration gives by a rule, never 0: with another number
// the rule was changed there.
func (t *Terms) hash() uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d %s", t.Max, t.StreamsMax, t.Scope)
	return h.Sum64() | 1
}

// Memory is the memory.max that the terms give on a device now.
func (t *Terms) Memory(b Bounds) Memory {
	file := b.Amount(t.Max)
	m := Unlimited()
	if m.Max = file; file != accounting.Max {
		m.MaxBy = t.Name
	}
	if forced, _ := t.Live.of(b.Device, MemoryMax); forced != nil {
		m.Max, m.MaxBy = b.Amount(forced.Value), t.by(forced, file.Human())
	}
	m.most = m.Limits
	return m
}

// Streams is how many streams the terms give to each lease now.
func (t *Terms) Streams() Streams {
	s := Streams{t.StreamsMax, t.StreamsMax, t.Name}
	if forced, _ := t.Live.of(AllDevices, StreamsMax); forced != nil {
		n := max(1, int(forced.Value.Bytes))
		s = Streams{n, n, t.by(forced, strconv.Itoa(t.StreamsMax))}
	}
	return s
}

// by says where a limit comes from that somebody set for all under the rule.
func (t *Terms) by(r *Row, file string) string {
	return fmt.Sprintf(wording.ByRoot, t.Live.by(r), t.Name, file)
}

// Owner names the rule in the table of live limits. A rule that the configuration gives other limits is another owner.
func (t *Terms) Owner() Owner { return Owner{Kind: OfRule, ID: t.ID, Start: t.says} }
