package arbiter

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// ruled is what the configuration gives to a process.
type ruled struct {
	name     string // for messages: `rule 2 (user student)`, or "the defaults"
	key      ruleKey
	min, max accounting.Size
	streams  int
	scope    Scope
	live     live // what was changed of max and streams since the configuration was read

	onFull    OnFull
	timeout   time.Duration
	after     int
	priority  int
	slotScope Scope
	reserve   accounting.Bytes // for each stream
	hostMax   *accounting.Bytes
}

// ruleKey says which rule it is, wherever in the configuration it stands: one that has a
// name goes by that, another by what it matches. The zero key is the defaults'.
type ruleKey struct {
	name  string
	match Match
}

// String is how people call the rule.
func (k ruleKey) String() string {
	switch {
	case k.name != "":
		return "rule " + k.name
	case k.match == (Match{}):
		return "the defaults"
	}
	return "the rule for " + plain(k.match.String())
}

// ruleFor returns what the first matching rule gives now, over the defaults.
func (a *Arbiter) ruleFor(proc Process) ruled {
	p := &a.policy
	r := p.defaults()
	for i := range p.Rules {
		rule := &p.Rules[i]
		if rule.Match.matches(proc) {
			r.apply(rule, i)
			r.live = a.changed[r.key]
			break
		}
	}
	r.streams = max(1, r.streams)
	if r.min.Max { // "max" reserves all that there is
		r.min = accounting.Size{PerMille: 1000}
	}
	return r
}

// defaults is what processes get that no rule matches.
func (p *Policy) defaults() ruled {
	return ruled{
		name: "the defaults", min: p.Defaults.Min, max: p.Defaults.Max,
		streams: p.Defaults.StreamsMax, scope: p.Defaults.Scope,
		onFull: p.Defaults.OnFull, timeout: p.Defaults.WaitTimeout, after: p.Defaults.WaitAfter,
		priority: p.Defaults.Priority, slotScope: p.Defaults.SlotScope, reserve: p.Defaults.StreamReserve,
		hostMax: p.Defaults.HostMax,
	}
}

// apply lets a rule's settings take the place of the defaults.
func (r *ruled) apply(rule *Rule, i int) {
	name := rule.Name
	if name == "" {
		name = fmt.Sprintf("rule %d", i+1)
	}
	r.name, r.key = fmt.Sprintf("%s (%s)", name, rule.Match), rule.key()
	put(&r.min, rule.Min)
	put(&r.max, rule.Max)
	put(&r.streams, rule.StreamsMax)
	put(&r.scope, rule.Scope)
	put(&r.onFull, rule.OnFull)
	put(&r.timeout, rule.WaitTimeout)
	put(&r.after, rule.WaitAfter)
	put(&r.priority, rule.Priority)
	put(&r.slotScope, rule.SlotScope)
	put(&r.reserve, rule.StreamReserve)
	if rule.HostMax != nil {
		r.hostMax = rule.HostMax
	}
}

// put lets a setting that is given take the place of another.
func put[T any](to, given *T) {
	if given != nil {
		*to = *given
	}
}

// normal fills in what the zero Policy leaves open.
func (p Policy) normal() Policy {
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
	if p.AgeAfter <= 0 {
		p.AgeAfter = DefaultAgeAfter
	}
	if p.DeadlockGrace <= 0 {
		p.DeadlockGrace = DefaultDeadlockGrace
	}
	return p
}

// deviceRule returns the first device rule that matches d; the zero rule if none does.
func (p *Policy) deviceRule(d Device) DeviceRule {
	for _, r := range p.Devices {
		if r.Match.Matches(d) {
			return r
		}
	}
	return DeviceRule{}
}

// live is what was changed while the job or process runs: by device index, and
// under AllDevices for devices without an entry of their own.
type live struct {
	on      map[int]liveLimits
	streams change[int]
}

// liveLimits are limits set on one device.
type liveLimits struct{ min, max change[accounting.Size] }

// change is a limit that was changed: by somebody privileged, whose word takes the place of
// the rule's, and by the owner, who stays within that.
type change[T any] struct{ forced, own setting[T] }

// setting is a limit as somebody set it; with value nil nobody did.
type setting[T any] struct {
	value  *T
	by     string // who
	lowers bool   // it never raises anything
}

// with returns c with a new setting: the last word counts.
func (c change[T]) with(s setting[T], force bool) change[T] {
	if force {
		return change[T]{forced: s}
	}
	c.own = s
	return c
}

// of returns what was set for a device.
func (v *live) of(device int) liveLimits {
	if l, ok := v.on[device]; ok {
		return l
	}
	return v.on[AllDevices]
}

// amount is a limit on a device: never more than the device has, unless it is no limit.
func amount(s accounting.Size, d *device) accounting.Bytes {
	b := s.Of(d.Total)
	if b == accounting.Max {
		return b
	}
	return min(b, d.Total)
}

// given are limits with what they come from.
type given struct {
	accounting.Limits
	most  accounting.Limits // what the owner may raise them to
	maxBy string            // who or what set Max; "": nobody, there is none
	minBy string
}

// unlimited are no limits.
func unlimited() given {
	return given{Limits: accounting.Limits{Max: accounting.Max}, most: accounting.Limits{Max: accounting.Max}}
}

// ruled puts what a rule gives in force.
func (g *given) ruled(r *ruled, d *device, min bool) {
	is := r.given(d)
	g.Max, g.maxBy = is.Max, is.maxBy
	if min {
		if g.Min = d.reservesByRule(r.min); g.Min > 0 {
			g.minBy = r.name
		}
	}
	g.most = g.Limits
}

// asked lowers memory.max to what a program asked for.
func (g *given) asked(max accounting.Bytes, by string) {
	if max < g.Max {
		g.Max, g.maxBy = max, by
	}
}

// change puts what was set live in force.
func (g *given) change(v liveLimits, d *device) {
	if f := v.max.forced; f.value != nil {
		g.Max, g.maxBy = amount(*f.value, d), f.by
		g.most.Max = g.Max
	}
	if own := v.max.own; own.value != nil {
		if most := min(amount(*own.value, d), g.most.Max); most < g.Max || !own.lowers {
			g.Max, g.maxBy = most, own.by
		}
	}
	if f := v.min.forced; f.value != nil {
		g.Min, g.minBy = min(amount(*f.value, d), d.Total), f.by
		g.most.Min = g.Min
	}
	if own := v.min.own; own.value != nil {
		if least := min(amount(*own.value, d), g.most.Min); least < g.Min {
			g.Min, g.minBy = least, own.by
		}
	}
}

// What limits that a job was started with come from.
const (
	flagMemory  = "gpuarb run --memory"
	flagMin     = "gpuarb run --min"
	flagStreams = "gpuarb run --streams"
)

// wished lowers limits to what a job's request asks; root's request takes the
// place of the rule's.
func (j *job) wished(g *given, d *device) {
	if w := j.request.Max; w != nil {
		if most := amount(*w, d); most < g.Max || j.request.Process.privileged() {
			g.Max, g.maxBy = most, flagMemory
		}
	}
	if w := j.request.Min; w != nil {
		g.Min, g.minBy = d.reserves(*w), flagMin
	}
	if j.request.Process.privileged() {
		g.most.Max = g.Max
	}
	g.most.Min = g.Min
}

// reservesByRule is what a rule reserves on a device: nothing on one that is too small for it,
// and no more than can be reserved there.
func (d *device) reservesByRule(s accounting.Size) accounting.Bytes {
	if n := d.reserves(s); n <= d.Total {
		return min(n, d.mostMin())
	}
	return 0
}

// each reports whether the job's limits are each process's own.
func (j *job) each() bool { return j.request.PerProcess || j.rule.scope == ScopeProcess }

// limits are the job's own limits on a device, as they are in force.
func (j *job) limits(d *device) accounting.Limits {
	l := j.wants(d)
	if j.pending || j.released || j.ended || !j.uses(d) {
		l.Min = 0
	}
	l.Min = min(l.Min, d.Total)
	return l
}

// uses reports whether a job may use a device.
func (j *job) uses(d *device) bool { return j.on == nil || slices.Contains(j.on, d) }

// wants are the limits that the job's own become with its start.
func (j *job) wants(d *device) accounting.Limits { return j.given(d).Limits }

// given is wants, with what they come from.
func (j *job) given(d *device) given {
	g := unlimited()
	if j.rule.scope == ScopeJob {
		g.ruled(&j.rule, d, !j.request.PerProcess)
	}
	if !j.request.PerProcess {
		j.wished(&g, d)
	}
	if !j.each() {
		g.change(j.live.of(d.Index), d)
	}
	return g
}

// limits are the limits of one process on a device, as they are in force.
func (s *session) limits(d *device) accounting.Limits {
	l := s.wants(d)
	if s.pending || !s.job.uses(d) {
		l.Min = 0
	}
	l.Min = min(l.Min, d.Total)
	return l
}

// streamReserve is what each of the session's streams is charged.
func (s *session) streamReserve() accounting.Bytes {
	if s.reserve != nil {
		return *s.reserve
	}
	return s.job.rule.reserve
}

// wants are the limits that one process's become with its start.
func (s *session) wants(d *device) accounting.Limits { return s.given(d).Limits }

// given is wants, with what they come from.
func (s *session) given(d *device) given {
	j := s.job
	g := unlimited()
	if j.rule.scope == ScopeProcess {
		g.ruled(&j.rule, d, true)
	}
	if j.request.PerProcess {
		j.wished(&g, d)
	}
	if j.each() {
		g.change(j.live.of(d.Index), d)
	}
	if s.max != nil {
		g.asked(amount(*s.max, d), "GPUARB_MEMORY, in the program's environment")
	}
	g.change(s.live.of(d.Index), d)
	return g
}

// streamLimit is how many streams each lease may have, to how many the owner may raise that,
// and who or what set it.
type streamLimit struct {
	max, most int
	by        string
}

// asked lowers the limit to what a program asked for.
func (l *streamLimit) asked(n int, by string) {
	if n != 0 && n < l.max {
		l.max, l.by = n, by
	}
}

// change puts what was set live in force, and the least that makes sense.
func (l *streamLimit) change(v change[int]) {
	if f := v.forced; f.value != nil {
		l.max, l.most, l.by = *f.value, *f.value, f.by
	}
	if own := v.own; own.value != nil {
		if n := min(*own.value, l.most); n < l.max || !own.lowers {
			l.max, l.by = n, own.by
		}
	}
	l.max = max(1, l.max)
}

// streamsMax is how many streams each lease of the job may have.
func (j *job) streamsMax() int { return j.streamsGiven().max }

func (j *job) streamsGiven() streamLimit {
	l := j.rule.streamsGiven()
	if w := j.request.Streams; w != 0 && j.request.Process.privileged() {
		l = streamLimit{w, w, flagStreams}
	} else {
		l.asked(w, flagStreams)
	}
	l.change(j.live.streams)
	if j.cap != nil {
		j.cap.user.limit(&l)
	}
	return l
}

// streamsMax is how many streams each lease of the session may have.
func (s *session) streamsMax() int { return s.streamsGiven().max }

func (s *session) streamsGiven() streamLimit {
	l := s.job.streamsGiven()
	l.asked(s.streams, "GPUARB_STREAMS, in the program's environment")
	l.change(s.live.streams)
	if c := s.job.cap; c != nil {
		c.user.limit(&l)
	}
	return l
}

// privileged reports whether a process may pass the rules.
func (p *Process) privileged() bool { return p.Privileged || privileged(p.UID) }

// privileged reports whether a user may pass the rules of every daemon.
func privileged(uid uint32) bool { return uid == 0 }
