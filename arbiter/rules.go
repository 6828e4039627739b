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
	min, max Size
	streams  int
	scope    Scope

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

// ruleFor returns what the first matching rule gives, over the defaults.
func (p *Policy) ruleFor(proc Process) ruled {
	r := ruled{
		name: "the defaults", min: p.Defaults.Min, max: p.Defaults.Max,
		streams: p.Defaults.StreamsMax, scope: p.Defaults.Scope,
		onFull: p.Defaults.OnFull, timeout: p.Defaults.WaitTimeout, after: p.Defaults.WaitAfter,
		priority: p.Defaults.Priority, slotScope: p.Defaults.SlotScope, reserve: p.Defaults.StreamReserve,
		hostMax: p.Defaults.HostMax,
	}
	for i := range p.Rules {
		rule := &p.Rules[i]
		if rule.Match.matches(proc) {
			r.apply(rule, i)
			break
		}
	}
	r.streams = max(1, r.streams)
	if r.min.Max { // "max" reserves all that there is
		r.min = Size{PerMille: 1000}
	}
	return r
}

// apply lets a rule's settings take the place of the defaults.
func (r *ruled) apply(rule *Rule, i int) {
	name := rule.Name
	if name == "" {
		name = fmt.Sprintf("rule %d", i+1)
	}
	r.name, r.key = fmt.Sprintf("%s (%s)", name, rule.Match), ruleKey{name: rule.Key}
	if rule.Key == "" {
		r.key.match = rule.Match
	}
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
	if d.Max == (Size{}) {
		d.Max = Size{Max: true}
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
	streams *int
	forced  bool // streams were set by somebody privileged
}

// liveLimits are limits set on one device; nil: not set.
type liveLimits struct {
	min, max  *Size
	forcedMin bool // set by somebody privileged: may pass the rule
	forcedMax bool
}

// of returns what was set for a device.
func (v *live) of(device int) liveLimits {
	if l, ok := v.on[device]; ok {
		return l
	}
	return v.on[AllDevices]
}

// amount is a limit on a device: never more than the device has, unless it is no limit.
func amount(s Size, d *device) accounting.Bytes {
	b := s.Of(d.Total)
	if b == accounting.Max {
		return b
	}
	return min(b, d.Total)
}

// over lowers limits to what was set live, or sets them where that was forced.
func (v liveLimits) over(l accounting.Limits, d *device) accounting.Limits {
	if v.max != nil {
		if most := amount(*v.max, d); v.forcedMax || most < l.Max {
			l.Max = most
		}
	}
	if v.min != nil {
		if least := min(amount(*v.min, d), d.Total); v.forcedMin || least < l.Min {
			l.Min = least
		}
	}
	return l
}

// wished lowers limits to what a job's request asks; root's request takes the
// place of the rule's.
func (j *job) wished(l accounting.Limits, d *device) accounting.Limits {
	if w := j.request.Max; w != nil {
		if most := amount(*w, d); most < l.Max || j.request.Process.privileged() {
			l.Max = most
		}
	}
	if w := j.request.Min; w != nil {
		l.Min = d.reserves(*w)
	}
	return l
}

// reservesByRule is what a rule reserves on a device: nothing on one that is too small for it,
// and no more than can be reserved there.
func (d *device) reservesByRule(s Size) accounting.Bytes {
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
func (j *job) wants(d *device) accounting.Limits {
	l := accounting.Limits{Max: accounting.Max}
	if j.rule.scope == ScopeJob {
		l.Max = amount(j.rule.max, d)
		if !j.request.PerProcess {
			l.Min = d.reservesByRule(j.rule.min)
		}
	}
	if !j.request.PerProcess {
		l = j.wished(l, d)
	}
	if !j.each() {
		l = j.live.of(d.Index).over(l, d)
	}
	return l
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
func (s *session) wants(d *device) accounting.Limits {
	j := s.job
	l := accounting.Limits{Max: accounting.Max}
	if j.rule.scope == ScopeProcess {
		l.Max, l.Min = amount(j.rule.max, d), d.reservesByRule(j.rule.min)
	}
	if j.request.PerProcess {
		l = j.wished(l, d)
	}
	if j.each() {
		l = j.live.of(d.Index).over(l, d)
	}
	if s.max != nil {
		l.Max = min(l.Max, amount(*s.max, d))
	}
	return s.live.of(d.Index).over(l, d)
}

// streamsMax is how many streams each lease of the job may have.
func (j *job) streamsMax() int {
	n := j.rule.streams
	if w := j.request.Streams; w != 0 && (w < n || j.request.Process.privileged()) {
		n = w
	}
	return j.live.limitStreams(n)
}

// streamsMax is how many streams each lease of the session may have.
func (s *session) streamsMax() int {
	n := s.job.streamsMax()
	if s.streams != 0 {
		n = min(n, s.streams)
	}
	return s.live.limitStreams(n)
}

// limitStreams applies what was set live, and the least that makes sense.
func (v *live) limitStreams(n int) int {
	if v.streams != nil && (v.forced || *v.streams < n) {
		n = *v.streams
	}
	return max(1, n)
}

// privileged reports whether a process may pass the rules.
func (p *Process) privileged() bool { return p.Privileged || privileged(p.UID) }

// privileged reports whether a user may pass the rules of every daemon.
func privileged(uid uint32) bool { return uid == 0 }
