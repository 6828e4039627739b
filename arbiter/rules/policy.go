package rules

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// Policy is the configuration in force.
type Policy struct {
	Defaults Settings
	Rules    []Rule // the first that matches decides
	Devices  []DeviceRule
	// Surplus is how much credit is given beyond a request when there is room;
	// 0: DefaultSurplus, NoSurplus: none.
	Surplus accounting.Bytes
	// ChargeOverhead counts a lease's overhead against its own budget, instead
	// of the device's capacity.
	ChargeOverhead bool
	// DeadlockGrace is how long a circle of waiters stands in which something may yet
	// move; 0: DefaultDeadlockGrace.
	DeadlockGrace time.Duration
	// ContextReserve is the first guess of what a context costs; a sixteenth of the
	// device at most. The zero Size: nothing, until one was seen.
	ContextReserve accounting.Size
	// ContextGuess is what a reservation assumes that its context costs where neither
	// ContextReserve nor a context that was seen tells it.
	ContextGuess accounting.Size

	live     Table   // what was changed of its rules since it was put in force
	terms    []Terms // what each of Rules gives, without live limits
	defaults Terms
}

// NoSurplus in Policy.Surplus turns the surplus off.
const NoSurplus = accounting.Max

// DefaultPolicy limits nothing but streams.
func DefaultPolicy() Policy {
	return Policy{
		Defaults: Settings{Max: accounting.Size{Max: true}, StreamsMax: DefaultStreams, Scope: ScopeJob},
		Surplus:  DefaultSurplus,
	}
}

// InForce returns the policy with what the zero Policy leaves open filled in. Its rules have the live limits that the table has of them.
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

// rules returns what each rule's settings give in the place of the defaults. Each rule has a number of its own: that of its key, or
// the next one if another rule has that.
func (p *Policy) rules() []Terms {
	all := make([]Terms, len(p.Rules))
	of := make(map[uint64]Key)
	for i := range all {
		rule, key := &p.Rules[i], p.Rules[i].key()
		id := key.ID()
		for other, taken := of[id]; taken && other != key; other, taken = of[id] {
			id++
		}
		of[id] = key
		name := cmp.Or(rule.Name, fmt.Sprintf("rule %d", i+1))
		t := Terms{Settings: p.Defaults.With(rule), Name: fmt.Sprintf("%s (%s)", name, rule.Match), Key: key, ID: id}.normal()
		t.says = t.hash()
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

// For returns what the first matching rule gives now, over the defaults. The policy must be in force, here and below.
func (p *Policy) For(proc Process) Terms {
	for i := range p.Rules {
		if p.Rules[i].Match.matches(proc) {
			return p.now(i)
		}
	}
	return p.defaults
}

// All are the terms of the rules, in the order that they are asked in.
func (p *Policy) All() []Terms {
	all := make([]Terms, len(p.terms))
	for i := range all {
		all[i] = p.now(i)
	}
	return all
}

// ByID returns what the rule with a number ([Terms.ID]) gives now. False: there is no such rule.
func (p *Policy) ByID(id uint64) (Terms, bool) {
	if i := slices.IndexFunc(p.terms, func(t Terms) bool { return t.ID == id }); i >= 0 {
		return p.now(i), true
	}
	return Terms{}, false
}

// now returns the terms of a rule with its live limits.
func (p *Policy) now(i int) Terms {
	t := p.terms[i]
	t.Live = p.live[t.Owner()]
	return t
}
