package arbiter

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file changes the table of live limits (rules/table.go). SetLimits checks a change, stores it in the table, puts it in force with
// renew (renew.go), and records an event for the audit log. RestoreLimits fills the table when the daemon starts.

// SetLimits changes the live limits of a device, rule, user, cgroup, job or process, for running programs and for later ones. name is the
// name of a user whose limits they are; "": unknown. If a limit falls below the held bytes, SetLimits closes the credit words below it and
// recalls idle credit before it returns. A change is made as a whole or not at all.
//
// Errors: ErrNoJob, ErrNoSession, ErrNoRule and ErrNoDevice if the owner or the device does not exist. ErrRange if a value makes no sense.
// ErrPermission if an owner tried to raise a limit, or a user other than root to change limits of a device, rule or cgroup. A *Result if a
// memory.min has no room.
func (a *Arbiter) SetLimits(now time.Time, of rules.Owner, name string, c rules.Change) error {
	of, err := a.LimitOwner(of)
	if err != nil {
		return err
	}
	s := a.subject(of, name)
	if err := c.CheckOwner(of, s.name); err != nil {
		return err
	}
	force, err := s.check(a, c)
	if err != nil {
		return err
	}
	defer a.cycle(now)
	was, had := s.values(a.devices, c), a.limits[of]
	next := &rules.Limits{Of: of, UID: s.owner.UID, User: s.owner.User}
	if had != nil {
		next.Rows = had.Rows
	}
	next.Set(c, force)
	a.putLimits(of, next)
	// A raised memory.max can also raise a memory.min that it bounded, and there may be no room for that.
	if refused := a.renew(now, s.under, s.job != nil); refused != nil {
		within := s.job.binding()
		if c.Privileged {
			within = nil
		}
		a.putLimits(of, had)
		for _, j := range a.jobs {
			if s.under(j) {
				a.link(j)
			}
		}
		why := reasonOf(refused)
		return refusal(why, refused, a.explainMin(s.job, within, refused, why))
	}
	if s.device != nil {
		a.slotsChanged(now, s.device)
	}
	if !c.Lowers {
		a.audit(now, c, s, was)
	}
	return nil
}

// putLimits replaces the live limits of an owner in the table; nil removes them. Limits of users and cgroups that limit nothing are
// removed. A device uses the new limits at once; jobs and sessions use them after a call of link.
func (a *Arbiter) putLimits(of rules.Owner, limits *rules.Limits) {
	if d := a.device(int(of.ID)); of.Kind == rules.OfDevice && d != nil {
		d.live = limits
	}
	if limits == nil || len(limits.Rows) == 0 || limits.Unlimited() && (of.Kind == rules.OfUser || of.Kind == rules.OfCgroup) {
		delete(a.limits, of)
		return
	}
	a.limits[of] = limits
}

// Limits returns the live limits of an owner, in the order in which they were set.
func (a *Arbiter) Limits(of rules.Owner) []rules.Row {
	if l := a.limits[of]; l != nil {
		return l.Rows
	}
	return nil
}

// RestoreLimits stores live limits in the table after a restart of the daemon, without checking them. It must be called before the jobs and
// sessions with these limits are restored. name is the name of a user whose limits they are; "": unknown. If two rows have the same file
// and device, the last one counts.
func (a *Arbiter) RestoreLimits(of rules.Owner, name string, rows []rules.Row) {
	limits := &rules.Limits{Of: of, User: name}
	for _, r := range rows {
		limits.Add(r)
	}
	if of.Kind == rules.OfUser {
		limits.UID = uint32(of.ID)
	}
	a.putLimits(of, limits)
}

// DropLimits removes all live limits of an owner from the table, without an event. Leases that still drain after their job or process has ended
// keep the limits that are in force.
func (a *Arbiter) DropLimits(now time.Time, of rules.Owner) {
	if a.limits[of] == nil {
		return
	}
	delete(a.limits, of)
	if of.Kind != rules.OfJob && of.Kind != rules.OfProcess {
		defer a.cycle(now)
		a.renew(now, a.subject(of, "").under, false)
	}
}

// LimitOwner returns the key of an owner in the table. A process without a start time becomes the process that has the PID now. A job
// without a runner becomes its process. The number of a rule becomes the rule as it is configured. ErrNoJob, ErrNoSession and ErrNoRule:
// the owner does not exist, or the only process of the job has ended.
func (a *Arbiter) LimitOwner(of rules.Owner) (rules.Owner, error) {
	switch of.Kind {
	case rules.OfJob:
		j := a.jobs[JobID(of.ID)]
		if j == nil {
			return of, fmt.Errorf("job %d: %w", of.ID, ErrNoJob)
		}
		owner := j.limitOwner()
		if owner.Kind == rules.OfProcess && len(a.sessionsOf(owner)) == 0 { // the process has ended, and its leases drain
			return of, fmt.Errorf("job %d: %w", of.ID, ErrNoJob)
		}
		return owner, nil
	case rules.OfRule:
		rule := a.policy.ByID(of.ID)
		if rule == nil {
			return of, ErrNoRule
		}
		return rule.Owner(), nil
	case rules.OfProcess:
		sessions := a.sessionsOf(of)
		if len(sessions) == 0 {
			return of, fmt.Errorf("process %d: %w", of.ID, ErrNoSession)
		}
		return sessions[0].limitOwner(), nil
	}
	return of, nil
}

// sessionsOf returns the sessions of a living process, the oldest first. If of has no start time, sessions of several processes may have the
// PID, because it was used again; sessionsOf then returns the sessions of the process that started last.
func (a *Arbiter) sessionsOf(of rules.Owner) (found []*session) {
	for _, s := range a.sessions {
		p := s.process
		switch {
		case !s.alive() || uint64(p.PID) != of.ID || of.Start != 0 && p.StartTicks != of.Start:
		case len(found) > 0 && p.StartTicks < found[0].process.StartTicks:
		case len(found) > 0 && p.StartTicks > found[0].process.StartTicks:
			found = []*session{s}
		default:
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(x, y *session) int { return int(x.id) - int(y.id) })
	return found
}

// subject describes an owner of limits that are changed: its names, and how to read and check its limits.
type subject struct {
	of        rules.Owner
	owner     rules.Process   // user who may lower the limits
	name      string          // name of the owner for errors
	eventName string          // name of the owner for events
	now       func() limited  // returns the limits in force; nil: the owner is a device
	device    *device         // the owner; nil: the owner is not a device, or does not exist
	job       *job            // the owner, or the job of the owning process; nil: the owner is neither job nor process
	under     func(*job) bool // reports whether a job has programs under the limits
}

// limited is a job, a session, a rule, or the live limits of a user or cgroup. Its limits are computed from a rule, from a job's request,
// and from rows of the table.
type limited interface {
	Memory(b rules.Bounds) rules.Memory
	Streams() rules.Streams
}

// subject returns the description of an owner that LimitOwner returned.
func (a *Arbiter) subject(of rules.Owner, name string) *subject {
	s := &subject{of: of}
	switch of.Kind {
	case rules.OfDevice:
		if s.name, s.device = accounting.DeviceName(int(of.ID), false), a.device(int(of.ID)); s.device != nil {
			s.name = s.device.String()
		}
		s.under = func(*job) bool { return false }
	case rules.OfRule:
		s.now = func() limited { return a.policy.ByID(of.ID) }
		s.name = a.RuleName(of.ID)
		rule := a.policy.ByID(of.ID) // nil: the rule does not exist any more, and its limits are dropped
		s.under = func(j *job) bool { return rule != nil && j.Rule.Key == rule.Key }
	case rules.OfUser:
		s.now = func() limited { return a.limits[of] }
		s.owner = rules.Process{UID: uint32(of.ID), User: name}
		s.name = wording.User(s.owner.UID, name)
		s.under = func(j *job) bool { return j.request.Process.UID == s.owner.UID }
	case rules.OfCgroup:
		s.now = func() limited { return a.limits[of] }
		s.name = fmt.Sprintf(wording.Cgroup, wording.Plain(of.Path))
		s.under = func(j *job) bool {
			return slices.ContainsFunc(j.sessions, func(x *session) bool { return x.process.InCgroup(of.Path) })
		}
	case rules.OfJob:
		s.ofJob(a.jobs[JobID(of.ID)])
	case rules.OfProcess:
		s.ofProcess(a.sessionsOf(of)[0])
	}
	if s.eventName == "" {
		s.eventName = s.name
	}
	return s
}

// ofJob describes a job.
func (s *subject) ofJob(j *job) {
	s.job, s.owner = j, j.request.Process
	s.under = func(x *job) bool { return x == j }
	s.now = func() limited { return &j.Job }
	if j.Each() {
		s.now = func() limited { return &j.newProcess().Client }
	}
	s.name, s.eventName = wording.Job(uint64(j.id), "", ""), j.owned()
}

// ofProcess describes the process of a session.
func (s *subject) ofProcess(x *session) {
	if s.ofJob(x.job); x.job.run {
		s.owner = *x.process
		s.now = func() limited { return &x.Client }
	}
	s.under = func(j *job) bool {
		return slices.ContainsFunc(j.sessions, func(y *session) bool { return y.limitOwner() == s.of })
	}
	s.name, s.eventName = fmt.Sprintf("process %d", x.process.PID), wording.Owned(x.process.User, x.name())
}

// check returns an error if a change makes no sense for the owner, or is not permitted. force: the change may exceed the limits of the
// rules.
func (s *subject) check(a *Arbiter, c rules.Change) (force bool, err error) {
	what := fmt.Sprintf(wording.LimitsOf, s.name)
	if s.of.Kind == rules.OfUser {
		what = fmt.Sprintf(wording.LimitOfUser, cmp.Or(wording.Plain(s.owner.User), s.name))
	}
	switch force, err = c.Forces(s.owner.UID, s.owner.User, what); {
	case err != nil:
		return force, err
	case !force && !c.Lowers && c.Namespace != s.owner.Namespace:
		return force, c.NotOwner(s.owner.UID, s.owner.User, what)
	}
	if err = s.checkValues(a, c, force); err != nil {
		err = fmt.Errorf("%s: %w", s.name, err)
	}
	return force, err
}

// checkValues returns an error if a change makes no sense for the owner, or exceeds what the owner may set.
func (s *subject) checkValues(a *Arbiter, c rules.Change, force bool) error {
	switch {
	case s.of.Kind == rules.OfDevice && (s.device == nil || c.Device != s.device.Index), c.Device != rules.AllDevices && a.device(c.Device) == nil:
		return noDevice(c.Device)
	case s.device != nil:
		return nil
	}
	if err := c.CheckStreams(s.now().Streams(), force); err != nil {
		return err
	}
	for _, d := range a.devices {
		if !c.On(d.Index) {
			continue
		}
		if err := c.CheckMemory(s.now().Memory(d.bounds()), d.bounds(), force); err != nil {
			return err
		}
	}
	return nil
}

// limitValue is the value in force of a limit.
type limitValue struct {
	device *device // nil: all devices
	file   string
	value  accounting.Bytes
	text   func(accounting.Bytes) string
}

// values returns the values in force of the limits that a change sets.
func (s *subject) values(on []*device, c rules.Change) (all []limitValue) {
	if c.Slots != nil {
		all = append(all, limitValue{s.device, "slots.max", accounting.Bytes(s.device.slotsMax()), countText(0)})
	}
	if c.Streams != nil {
		all = append(all, limitValue{nil, "streams.max", accounting.Bytes(s.now().Streams().Max), countText(rules.NoStreams)})
	}
	for _, d := range on {
		if c.Max != nil && c.On(d.Index) {
			all = append(all, limitValue{d, "memory.max", s.now().Memory(d.bounds()).Max, accounting.Bytes.Human})
		}
		if c.Min != nil && c.On(d.Index) {
			all = append(all, limitValue{d, "memory.min", s.now().Memory(d.bounds()).Min, accounting.Bytes.Human})
		}
	}
	return all
}

// countText returns a function that formats a streams.max or slots.max. The value none means no limit.
func countText(none accounting.Bytes) func(accounting.Bytes) string {
	return func(n accounting.Bytes) string {
		if n == none {
			return "max"
		}
		return strconv.FormatUint(uint64(n), 10)
	}
}

// audit records an event for each limit and device that a change has changed: who changed it, its owner, and its old and new value.
func (a *Arbiter) audit(now time.Time, c rules.Change, s *subject, was []limitValue) {
	for i, is := range s.values(a.devices, c) {
		if is.value == was[i].value {
			continue
		}
		from, to := is.text(was[i].value), is.text(is.value)
		if from == to {
			from, to = was[i].value.Exact(), is.value.Exact()
		}
		e := Event{Time: now, Kind: EventLimits, Device: rules.AllDevices, UID: c.UID, ByPID: c.PID, User: s.owner.User, Setting: is.file, From: from, To: to, Whose: s.eventName}
		if s.job != nil {
			e.in(s.job)
		}
		whose := s.eventName
		if is.device != nil {
			e.Device = is.device.Index
		}
		if is.device != s.device {
			whose = fmt.Sprintf(wording.OnDevice, whose, is.device)
		}
		e.Text = fmt.Sprintf(wording.Changed, wording.Setter(c.UID, s.owner.UID, s.owner.User), is.file, whose, from, to)
		a.event(e)
	}
}

// JobMax returns the memory.max that was last set on all devices for a session's job, else the one that the job asked for. If only the
// rules limit the job, Max is set in the Size. streams is the streams.max in force.
func (a *Arbiter) JobMax(id SessionID) (most accounting.Size, streams int) {
	most = accounting.Size{Max: true}
	s := a.sessions[id]
	if s == nil {
		return most, 0
	}
	if set := s.job.Live.Max(); set != nil {
		most = *set
	} else if set := s.job.Asked.Max; set != nil {
		most = *set
	}
	return most, s.job.Streams().Max
}
