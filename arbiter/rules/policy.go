package rules

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// This file has the configuration in force, and finds the rule of a process or a device. The configuration builds a Policy; rule.go has the
// rules.

// Policy is the configuration in force.
type Policy struct {
	Defaults Settings
	Rules    []Rule // the first that matches decides
	Devices  []DeviceRule
	// Surplus is the most bytes of credit that a lease is given beyond its request; 0: DefaultSurplus, NoSurplus: none.
	Surplus accounting.Bytes
	// ChargeOverhead counts a lease's overhead against its own budget, instead
	// of the device's capacity.
	ChargeOverhead bool
	// ChargeUnmanaged counts the memory of processes in the cgroup of a job that use a device without a lease against the job's budget.
	ChargeUnmanaged bool
	// DeadlockGrace is how long a deadlock must stand before it is broken if a job in it has threads that do not wait; 0: DefaultDeadlockGrace.
	DeadlockGrace time.Duration
	// EvictAfter is how long the first request of a queue waits before idle jobs are asked to make room for it; 0: they never are.
	EvictAfter time.Duration
	// ContextReserve is the cost of a context until one was measured; a sixteenth of the device at most. The zero Size: 0 until then.
	ContextReserve accounting.Size
	// ContextGuess is the headroom of a reservation while the cost of a context is not known from ContextReserve or a measured context.
	ContextGuess accounting.Size

	live     Table    // live limits, of which those of rules are used
	terms    []*Terms // settings that each of Rules gives, with the live limits at which the settings were last asked for
	defaults *Terms   // settings of processes that no rule matches
}

// NoSurplus in Policy.Surplus turns the surplus off.
const NoSurplus = accounting.Max

// DefaultPolicy limits nothing but streams.
func DefaultPolicy() Policy {
	return Policy{
		Defaults: Settings{Max: accounting.Size{Max: true}, StreamsMax: DefaultStreams, Scope: ScopeJob},
		Surplus:  DefaultSurplus, ChargeUnmanaged: true,
	}
}

// InForce returns the policy with default values for the fields that are zero. Its rules get their live limits from the table.
func (p Policy) InForce(live Table) Policy {
	d := &p.Defaults
	if d.Max == (accounting.Size{}) {
		d.Max = accounting.Size{Max: true}
	}
	if d.StreamsMax == 0 {
		d.StreamsMax = DefaultStreams
	}
	switch d.Scope {
	case ScopeProcess, ScopeUser, ScopeCgroup, ScopeRule:
	default:
		d.Scope = ScopeJob
	}
	if p.Surplus == 0 {
		p.Surplus = DefaultSurplus
	}
	if d.WaitTimeout == 0 {
		d.WaitTimeout = DefaultWaitTimeout
	}
	if p.DeadlockGrace <= 0 {
		p.DeadlockGrace = DefaultDeadlockGrace
	}
	p.live = live
	p.defaults = Terms{Settings: p.Defaults, Name: "the defaults"}.normal()
	p.terms = p.rules()
	return p
}

// rules returns the settings of each rule over the defaults. Each rule has a number (Terms.ID) of its own: that of its key, or, if another
// rule has that number, the next free one.
func (p *Policy) rules() []*Terms {
	all := make([]*Terms, len(p.Rules))
	of := make(map[uint64]Key)
	for i := range all {
		rule, key := &p.Rules[i], p.Rules[i].key()
		id := key.ID()
		for other, taken := of[id]; taken && other != key; other, taken = of[id] {
			id++
		}
		of[id] = key
		name := cmp.Or(rule.Name, fmt.Sprintf("rule %d", i+1))
		t := Terms{Settings: p.Defaults.With(rule), Name: fmt.Sprintf("%s (%s)", name, rule.Match), Key: key, ID: id, ByProgram: rule.Match.Exe != "" || rule.Match.Command != ""}.normal()
		t.configHash = t.hash()
		all[i] = t
	}
	return all
}

// ForDevice returns the first device rule that matches d; the zero rule if none does.
func (p *Policy) ForDevice(d Device) DeviceRule {
	for _, r := range p.Devices {
		if r.Match.Matches(d) {
			return r
		}
	}
	return DeviceRule{}
}

// For returns the settings for a process: those of the first rule that matches it, with live limits; else the defaults. For, All and ByID
// need a policy that InForce has returned.
func (p *Policy) For(proc Process) *Terms {
	for i := range p.Rules {
		if p.Rules[i].Match.matches(proc) {
			return p.now(i)
		}
	}
	return p.defaults
}

// All returns the settings of all rules, in the order in which they are matched.
func (p *Policy) All() []*Terms {
	all := make([]*Terms, len(p.terms))
	for i := range all {
		all[i] = p.now(i)
	}
	return all
}

// ByID returns the settings of the rule with a number ([Terms.ID]), with live limits; nil: there is no such rule.
func (p *Policy) ByID(id uint64) *Terms {
	if i := slices.IndexFunc(p.terms, func(t *Terms) bool { return t.ID == id }); i >= 0 {
		return p.now(i)
	}
	return nil
}

// now returns the settings of a rule with its live limits. If these have changed it makes a copy, because jobs have the settings as they were.
func (p *Policy) now(i int) *Terms {
	if live := p.live[p.terms[i].Owner()]; live != p.terms[i].Live {
		next := *p.terms[i]
		next.Live = live
		p.terms[i] = &next
	}
	return p.terms[i]
}
