package arbiter

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"strconv"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// What a rule gives can be changed while programs run, until the next configuration is put in
// force: for the budget that it has jobs share, or for each job or process that it matches, and
// for those that come later.

// id is the rule in a message, where its name has no room.
func (k ruleKey) id() uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s\x00%s", k.name, k.match)
	return h.Sum64()
}

// RuleSays is what the configuration gives by a rule, in one number: another one means that the
// rule was changed there. False: there is no such rule.
func (a *Arbiter) RuleSays(id uint64) (says uint64, ok bool) {
	i := a.policy.ruleByID(id)
	if i < 0 {
		return 0, false
	}
	r := a.policy.given(i)
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d %s", r.max, r.streams, r.scope)
	return h.Sum64() | 1, true
}

// RuleName is how people know a rule.
func (a *Arbiter) RuleName(id uint64) string {
	if i := a.policy.ruleByID(id); i >= 0 {
		return a.policy.Rules[i].key().String()
	}
	return "a rule that is not there"
}

// ruleByID is the index of a rule, or -1.
func (p *Policy) ruleByID(id uint64) int {
	for i := range p.Rules {
		if p.Rules[i].key().id() == id {
			return i
		}
	}
	return -1
}

// key is how the rule is known after a reload.
func (r *Rule) key() ruleKey {
	if r.Key == "" {
		return ruleKey{match: r.Match}
	}
	return ruleKey{name: r.Key}
}

// given is what a rule gives by the configuration.
func (p *Policy) given(i int) ruled {
	r := p.defaults()
	r.apply(&p.Rules[i], i)
	return r
}

// given is what a rule gives on a device now.
func (r *ruled) given(d *device) given {
	g := given{Limits: accounting.Limits{Max: amount(r.max, d)}, most: accounting.Limits{Max: accounting.Max}}
	if g.Max != accounting.Max {
		g.maxBy = r.name
	}
	if f := r.live.of(d.Index).max.forced; f.value != nil {
		g.Max, g.maxBy = amount(*f.value, d), r.by(f.by, amount(r.max, d).Human())
	}
	return g
}

// streamsGiven is how many streams the rule gives to each lease now.
func (r *ruled) streamsGiven() streamLimit {
	l := streamLimit{max(1, r.streams), max(1, r.streams), r.name}
	if f := r.live.streams.forced; f.value != nil {
		l = streamLimit{max(1, *f.value), max(1, *f.value), r.by(f.by, strconv.Itoa(r.streams))}
	}
	return l
}

// by says where a limit comes from that somebody set for all under the rule.
func (r *ruled) by(setter, file string) string {
	return fmt.Sprintf("%s, for %s, which gives %s", setter, r.name, file)
}

// SetRuleLimits changes memory.max and streams.max of a rule, as SetUserLimits does for a user,
// for those under it and those who come later; the next SetPolicy undoes it. ErrNoRule,
// ErrRange, ErrNoDevice, ErrPermission (only root may).
func (a *Arbiter) SetRuleLimits(now time.Time, id uint64, c Change) error {
	i := a.policy.ruleByID(id)
	if i < 0 {
		return ErrNoRule
	}
	rule := a.policy.given(i)
	who := rule.key.String()
	if c.Min != nil {
		return fmt.Errorf("%s: memory.max and streams.max can be changed live, memory.min in the configuration: %w", who, ErrRange)
	}
	if !c.Privileged && !privileged(c.UID) {
		return fmt.Errorf("%s: only root may change what a rule gives: %w", who, ErrPermission)
	}
	rule.live, c.Lowers = a.changed[rule.key], false
	edit, err := a.edit(c, who, limitEdit{owner: &Process{}, live: &rule.live, whose: who, now: rule.given, streams: rule.streamsGiven})
	if err != nil {
		return err
	}
	defer a.turn(now)
	a.changed[rule.key] = rule.live
	a.applyRules(now)
	a.audit(now, c, edit)
	return nil
}

// ruleStates describes the rules, in the order that they are asked in.
func (a *Arbiter) ruleStates() []accounting.RuleState {
	states := make([]accounting.RuleState, len(a.policy.Rules))
	for i := range a.policy.Rules {
		r := a.policy.given(i)
		r.live = a.changed[r.key]
		streams := r.streamsGiven()
		to := &states[i]
		*to = accounting.RuleState{ID: r.key.id(), Name: cmp.Or(r.key.name, strconv.Itoa(i+1)), Title: r.name, Scope: string(r.scope),
			Streams: streams.max, StreamsBy: streams.by, Devices: make([]accounting.RuleDeviceState, len(a.devices))}
		for n, d := range a.devices {
			g := r.given(d)
			to.Devices[n] = accounting.RuleDeviceState{Device: d.Index, Max: g.Max, MaxBy: g.maxBy}
		}
	}
	return states
}
