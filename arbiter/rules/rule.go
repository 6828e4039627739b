package rules

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file has the settings of rules and of device rules, and identifies rules over reloads. policy.go finds the rule of a process.

// Defaults of a policy.
const (
	DefaultStreams                  = 256     // streams of each lease on a device
	DefaultSurplus accounting.Bytes = 4 << 20 // bytes of credit that a lease gets in addition to its request

	DefaultWaitTimeout   = 10 * time.Minute
	DefaultDeadlockGrace = 2 * time.Second
)

// Scope is the set of jobs or processes that share a budget or a slot.
type Scope string

// Scopes.
const (
	ScopeJob     Scope = "job"
	ScopeProcess Scope = "process"
	ScopeUser    Scope = "user"
	ScopeCgroup  Scope = "cgroup"
	ScopeRule    Scope = "rule"   // all jobs that the rule matches
	ScopeThread  Scope = "thread" // only for slots
)

// OnFull is the answer to a request above memory.min that has no room.
type OnFull string

// Answers of OnFull.
const (
	OnFullDeny OnFull = "deny"
	OnFullWait OnFull = "wait"
)

// NoTimeout is a wait_timeout without a limit.
const NoTimeout time.Duration = -1

// Settings are the settings of a rule or of the defaults.
type Settings struct {
	Min        accounting.Size // memory.min; the zero Size: nothing is reserved
	Max        accounting.Size // memory.max
	StreamsMax int             // streams of each lease; 0: DefaultStreams; below 1: 1
	Scope      Scope           // "": ScopeJob

	OnFull        OnFull            // "": OnFullDeny
	WaitTimeout   time.Duration     // 0: DefaultWaitTimeout
	WaitAfter     *int              // number of refusals in a burst before a request waits; nil: 1 for a program with a caching allocator, else 0
	AgeAfter      time.Duration     // a wait after which a request blocks jobs that have held memory for longer; 0 or NoTimeout: it never does
	IdleWarn      time.Duration     // idle time after which a warning is given; 0 or NoTimeout: never
	AgeWarn       time.Duration     // age of a job at which a warning is given; 0 or NoTimeout: never
	Priority      int               // higher is served first
	SlotScope     Scope             // owner of one slot: ScopeJob, ScopeProcess or ScopeThread; "": as the rule of the device says
	StreamReserve accounting.Bytes  // bytes charged for each stream
	HostMax       *accounting.Bytes // pinned host memory that each process may hold; nil: no limit
	NoExports     bool              // programs get the library without exported driver functions
	Devices       DeviceList        // devices that programs may use and on which they reserve; "": every device
	Evict         Evict             // how idle jobs make room for waiting requests
}

// Rule gives settings to the processes that it matches. Fields that are nil have the policy's defaults.
type Rule struct {
	Name       string // name for messages, such as "rule 2"; may be ""
	Key        string // name in the configuration, by which a rule is recognized after a reload; "": it is recognized by Match
	Match      Match
	Min, Max   *accounting.Size
	StreamsMax *int // a value below 1 counts as 1
	Scope      *Scope

	OnFull        *OnFull
	WaitTimeout   *time.Duration
	WaitAfter     *int
	AgeAfter      *time.Duration
	IdleWarn      *time.Duration
	AgeWarn       *time.Duration
	Priority      *int
	SlotScope     *Scope
	StreamReserve *accounting.Bytes
	HostMax       *accounting.Bytes
	NoExports     *bool
	Devices       *DeviceList
	Evict         EvictRule
}

// DeviceMatch selects devices: each field that is set must match.
type DeviceMatch struct {
	Index  *int
	UUID   string
	PCI    string
	Vendor string
}

// Matches reports whether m selects d.
func (m DeviceMatch) Matches(d Device) bool {
	return (m.Index == nil || *m.Index == d.Index && d.IsGPU()) && (m.UUID == "" || m.UUID == d.UUID) &&
		(m.PCI == "" || m.PCI == d.PCI) && (m.Vendor == "" || m.Vendor == d.Vendor)
}

// DeviceRule configures the devices that it matches. The first match counts.
type DeviceRule struct {
	Match    DeviceMatch
	Reserve  accounting.Size // memory that is never granted
	SlotsMax int             // 0: no limit

	SlotScope      Scope            // "": ScopeJob
	ContextReserve *accounting.Size // nil: as Policy.ContextReserve
	Memory         accounting.Bytes // total memory that the device counts as having; 0: as the driver reports
	Also           []string         // drivers in CPUDrivers that compute on the processor and are counted on this device
}

// CPUDrivers are the drivers that compute on the processor and can be counted on another device. The library uses the same names.
var CPUDrivers = []string{"pocl", "llvmpipe"}

// Terms are the settings that a rule, or the defaults, give to a process. All jobs under the rule share one Terms, which never changes.
type Terms struct {
	Settings
	Name string // for messages: `rule 2 (user student)`, or "the defaults"
	Key  Key
	ID   uint64  // number of the rule in IPC messages, which have no room for its name; 0: the defaults
	Live *Limits // live changes of memory.max and streams.max
	// ByProgram reports whether the rule matches programs by their executable or command line. `gpuarb run` itself then is under another
	// rule, unless it matches too.
	ByProgram bool

	configHash uint64 // hash of the settings in the configuration
}

// Key identifies a rule wherever it stands in the configuration: by its name, or by its match if it has no name. The zero Key identifies
// the defaults.
type Key struct {
	Name  string
	match Match
}

// String returns the name of the rule for messages.
func (k Key) String() string {
	switch {
	case k.Name != "":
		return "rule " + k.Name
	case k.match == (Match{}):
		return "the defaults"
	}
	return fmt.Sprintf(wording.RuleFor, wording.Plain(k.match.String()))
}

// ID returns the number of the rule, unless another rule has that number: see [Terms.ID].
func (k Key) ID() uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s\x00%s", k.Name, k.match)
	return h.Sum64()
}

// key returns the key by which the rule is recognized after a reload.
func (r *Rule) key() Key {
	if r.Key == "" {
		return Key{match: r.Match}
	}
	return Key{Name: r.Key}
}

// With returns s with the settings of a rule that are not nil in place of its own.
func (s Settings) With(rule *Rule) Settings {
	override(&s.Min, rule.Min)
	override(&s.Max, rule.Max)
	override(&s.StreamsMax, rule.StreamsMax)
	override(&s.Scope, rule.Scope)
	override(&s.OnFull, rule.OnFull)
	override(&s.WaitTimeout, rule.WaitTimeout)
	override(&s.AgeAfter, rule.AgeAfter)
	override(&s.IdleWarn, rule.IdleWarn)
	override(&s.AgeWarn, rule.AgeWarn)
	override(&s.Priority, rule.Priority)
	override(&s.SlotScope, rule.SlotScope)
	override(&s.StreamReserve, rule.StreamReserve)
	override(&s.NoExports, rule.NoExports)
	override(&s.Devices, rule.Devices)
	if rule.HostMax != nil {
		s.HostMax = rule.HostMax
	}
	if rule.WaitAfter != nil {
		s.WaitAfter = rule.WaitAfter
	}
	s.Evict = s.Evict.with(&rule.Evict)
	return s
}

// normal returns t with corrected values in place of invalid ones.
func (t Terms) normal() *Terms {
	t.StreamsMax = max(1, t.StreamsMax)
	if t.Min.Max { // "max" reserves the whole device
		t.Min = accounting.Size{PerMille: 1000}
	}
	return &t
}

// hash returns a hash of the settings that a rule has in the configuration, never 0. It changes if the rule is changed there.
func (t *Terms) hash() uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d %s", t.Max, t.StreamsMax, t.Scope)
	return h.Sum64() | 1
}

// Memory returns the memory.max of the rule on a device: its live limit, or else the setting of the configuration.
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

// Streams returns the streams.max of the rule: its live limit, or else the setting of the configuration.
func (t *Terms) Streams() Streams {
	s := Streams{t.StreamsMax, t.StreamsMax, t.Name}
	if forced, _ := t.Live.of(AllDevices, StreamsMax); forced != nil {
		n := max(1, int(forced.Value.Bytes))
		s = Streams{n, n, t.by(forced, strconv.Itoa(t.StreamsMax))}
	}
	return s
}

// by returns the source of a live limit of the rule, for messages.
func (t *Terms) by(r *Row, file string) string {
	return fmt.Sprintf(wording.ByRoot, t.Live.by(r), t.Name, file)
}

// Owner returns the key of the rule in the table of live limits. A rule whose settings change in the configuration gets another key.
func (t *Terms) Owner() Owner { return Owner{Kind: OfRule, ID: t.ID, Start: t.configHash} }
