package arbiter

import (
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// limitChange is a budget's new limits on a device.
type limitChange struct {
	budget *accounting.Budget
	device *device
	limits accounting.Limits

	headroom *headroom // before the change
}

// SetJobLimits changes a job's limits (its processes', where each has a budget of
// its own). All or nothing: ErrNoJob, ErrNoDevice, ErrRange, ErrPermission (the owner
// may only lower), or a *Refusal when a memory.min has no room. What is lowered below
// what is held closes the words and takes idle credit back before this returns.
func (a *Arbiter) SetJobLimits(now time.Time, id JobID, c Change) error {
	edit, err := a.editJob(id, c)
	if err != nil {
		return err
	}
	return a.change(now, c, []limitEdit{edit})
}

// SoleProcess returns the process that is a job by itself; false where it is another kind
// of job, or none.
func (a *Arbiter) SoleProcess(id JobID) (Process, bool) {
	j := a.jobs[id]
	if j == nil || j.run || len(j.sessions) == 0 {
		return Process{}, false
	}
	return j.sessions[0].process, true
}

// SetProcessLimits changes the limits of one process, in all its sessions or in none;
// those of its job where that is a bare process's. Errors as of SetJobLimits, with ErrNoSession.
func (a *Arbiter) SetProcessLimits(now time.Time, c Change, ids ...SessionID) error {
	edits := make([]limitEdit, 0, len(ids))
	for _, id := range ids {
		edit, err := a.editProcess(id, c)
		if err != nil {
			undo(edits)
			return err
		}
		edits = append(edits, edit)
	}
	return a.change(now, c, edits)
}

// limitEdit is a change that is written into a job or a session, and not in force yet.
type limitEdit struct {
	job     *job     // nil: a user's, or a rule's
	owner   *Process // for the audit trail
	live    *live
	old     live
	changes func() []limitChange // of the ledger, by what is written in all of them
	whose   string               // for the audit trail
	now     func(*device) given  // the limits as they are
	streams func() streamLimit
	was     []given // now on each device, before the change
	had     int     // streams, likewise
}

// edit notes what is in force and writes a change over it, unless it makes no sense there or is not
// permitted. who names, in the error, whose limits they are.
func (a *Arbiter) edit(c Change, who string, e limitEdit) (limitEdit, error) {
	force, err := a.checkChange(c, e.owner.UID, e.now, e.streams())
	if err != nil {
		return limitEdit{}, fmt.Errorf("%s: %w", who, err)
	}
	e.old, e.had = *e.live, e.streams().max
	for _, d := range a.devices {
		e.was = append(e.was, e.now(d))
	}
	*e.live = e.live.with(c, force, by(c.UID, e.owner))
	return e, nil
}

// undo puts back what edits have written, the last first.
func undo(edits []limitEdit) {
	for i := len(edits) - 1; i >= 0; i-- {
		*edits[i].live = edits[i].old
	}
}

// editJob writes a change into a job, unless it makes no sense there.
func (a *Arbiter) editJob(id JobID, c Change) (limitEdit, error) {
	j := a.jobs[id]
	if j == nil {
		return limitEdit{}, fmt.Errorf("job %d: %w", id, ErrNoJob)
	}
	current, p := j.given, &j.request.Process
	if j.each() {
		current = (&session{job: j}).given
	}
	who, whose := fmt.Sprintf("job %d", id), owned(p.User, j.name())
	if !j.run && len(j.sessions) > 0 {
		who, whose = fmt.Sprintf("process %d", p.PID), owned(p.User, j.sessions[0].name())
	}
	return a.edit(c, who, limitEdit{job: j, owner: p, live: &j.live, whose: whose, now: current, streams: j.streamsGiven,
		changes: func() []limitChange { return a.allChanges(j) }})
}

// editProcess is editJob for one session.
func (a *Arbiter) editProcess(id SessionID, c Change) (limitEdit, error) {
	s := a.sessions[id]
	if s == nil || !s.alive() {
		return limitEdit{}, noSession(id)
	}
	if !s.job.run {
		return a.editJob(s.job.id, c)
	}
	return a.edit(c, fmt.Sprintf("process %d", s.process.PID), limitEdit{job: s.job, owner: &s.process, live: &s.live,
		whose: owned(s.process.User, s.name()), now: s.given, streams: s.streamsGiven,
		changes: func() []limitChange { return a.sessionChanges(nil, s) }})
}

// Given is what a session's job was given, or had changed on every device, beyond what the
// rules say; a Size with Max set stands for nothing. streams are those in force.
func (a *Arbiter) Given(id SessionID) (most accounting.Size, streams int) {
	s := a.sessions[id]
	if s == nil {
		return accounting.Size{Max: true}, 0
	}
	j := s.job
	most = accounting.Size{Max: true}
	switch changed := j.live.of(AllDevices).max; {
	case changed.own.value != nil:
		most = *changed.own.value
	case changed.forced.value != nil:
		most = *changed.forced.value
	case j.request.Max != nil:
		most = *j.request.Max
	}
	return most, j.streamsMax()
}

// change puts edits in force, or undoes them all and moves nothing.
func (a *Arbiter) change(now time.Time, c Change, edits []limitEdit) error {
	defer a.turn(now)
	var changes []limitChange
	for _, e := range edits {
		changes = append(changes, e.changes()...)
	}
	done, refused := a.setLimits(changes, true) // a raised memory.max can bring a memory.min back too
	if refused != nil {
		undo(edits)
		j := edits[0].job
		return a.minRefused(refused, j, j.reason(refused))
	}
	for i, e := range edits {
		if i == 0 {
			a.afterLimits(now, e.job, done)
		} else {
			a.afterLimits(now, e.job, nil)
		}
		a.audit(now, c, e)
	}
	return nil
}

// audit says who changed which limit of whose from what to what, device by device where they
// differ. What was only set again after a restart is no change.
func (a *Arbiter) audit(now time.Time, c Change, e limitEdit) {
	if c.Again {
		return
	}
	say := func(d *device, limit, from, to string) {
		event := Event{Time: now, Kind: EventLimits, Device: AllDevices, UID: c.UID, Setting: limit, From: from, To: to, Whose: e.whose}
		if e.job != nil {
			event.Job = e.job.id
		}
		where := ""
		if d != nil {
			event.Device, where = d.Index, fmt.Sprintf(" on GPU %d", d.Index)
		}
		event.Text = fmt.Sprintf("%s changed %s of %s%s from %s to %s", by(c.UID, e.owner), limit, e.whose, where, from, to)
		a.event(event)
	}
	if c.Streams != nil {
		say(nil, "streams.max", streamsText(e.had), streamsText(e.streams().max))
	}
	for i, d := range a.devices {
		if c.Device != AllDevices && c.Device != d.Index {
			continue
		}
		is := e.now(d)
		if c.Max != nil {
			say(d, "memory.max", e.was[i].Max.Human(), is.Max.Human())
		}
		if c.Min != nil {
			say(d, "memory.min", e.was[i].Min.Human(), is.Min.Human())
		}
	}
}

// streamsText writes a streams.max.
func streamsText(n int) string {
	if n == NoStreams {
		return "max"
	}
	return strconv.Itoa(n)
}

// by is how people know who changed a limit of a process or job.
func by(uid uint32, owner *Process) string {
	switch {
	case uid == 0:
		return "root"
	case uid == owner.UID && owner.User != "" && owner.User != strconv.FormatUint(uint64(uid), 10):
		return plain(owner.User)
	}
	return fmt.Sprintf("user %d", uid)
}

// String says what a change sets.
func (c Change) String() string {
	text := ""
	if c.Max != nil {
		text += " memory.max=" + c.Max.String()
	}
	if c.Min != nil {
		text += " memory.min=" + c.Min.String()
	}
	if c.Streams != nil {
		text += fmt.Sprintf(" streams.max=%d", *c.Streams)
	}
	if c.Device == AllDevices {
		return text[min(1, len(text)):] + " on every GPU"
	}
	return fmt.Sprintf("%s on GPU %d", text[min(1, len(text)):], c.Device)
}

// checkChange tells whether a change makes sense and is permitted, and whether
// it may pass the rule.
func (a *Arbiter) checkChange(c Change, owner uint32, current func(*device) given, streams streamLimit) (bool, error) {
	force := (c.Privileged || privileged(c.UID)) && !c.Lowers
	if !force && c.UID != owner {
		return false, fmt.Errorf("user %d is not its owner: %w", c.UID, ErrPermission)
	}
	if c.Device != AllDevices && a.device(c.Device) == nil {
		return false, noDevice(c.Device)
	}
	if c.Streams != nil && *c.Streams < 1 {
		return false, fmt.Errorf("streams.max of %d: %w (1 is the least)", *c.Streams, ErrRange)
	}
	if c.Lowers { // what would raise something changes nothing
		return false, nil
	}
	if c.Streams != nil && !force && *c.Streams > streams.most {
		return false, fmt.Errorf("streams.max of %d is above %d, and only root may raise it beyond that: %w", *c.Streams, streams.most, ErrPermission)
	}
	for _, d := range a.devices {
		if c.Device != AllDevices && c.Device != d.Index {
			continue
		}
		l := current(d)
		if err := checkLimits(c, l, d, force); err != nil {
			return false, err
		}
	}
	return force, nil
}

// checkLimits tells whether a change of the limits on one device makes sense and is permitted.
func checkLimits(c Change, l given, d *device, force bool) error {
	most := l.Max
	if c.Max != nil {
		if most = amount(*c.Max, d); most > l.most.Max && !force {
			return fmt.Errorf("memory.max of %s is above the %s that is allowed on GPU %d, and only root may raise it beyond that: %w",
				most.Human(), l.most.Max.Human(), d.Index, ErrPermission)
		}
	}
	if c.Min == nil {
		return nil
	}
	least := min(amount(*c.Min, d), d.Total)
	if least > l.most.Min && !force {
		return fmt.Errorf("memory.min of %s is above the %s that is allowed on GPU %d, and only root may raise it beyond that: %w",
			least.Human(), l.most.Min.Human(), d.Index, ErrPermission)
	}
	if least > most && !c.Min.Max {
		return fmt.Errorf("memory.min of %s is above the memory.max of %s on GPU %d: %w",
			least.Human(), most.Human(), d.Index, ErrRange)
	}
	return nil
}

// with returns v with a change written over it. What somebody privileged once set
// stays free of the rule when the owner lowers it further.
func (v live) with(c Change, force bool, by string) live {
	if c.Streams != nil {
		v.streams = v.streams.with(setting[int]{c.Streams, by, c.Lowers}, force)
	}
	if c.Min == nil && c.Max == nil {
		return v
	}
	set := func(l liveLimits) liveLimits {
		if c.Max != nil {
			l.max = l.max.with(setting[accounting.Size]{c.Max, by, c.Lowers}, force)
		}
		if c.Min != nil {
			l.min = l.min.with(setting[accounting.Size]{c.Min, by, c.Lowers}, force)
		}
		return l
	}
	on := make(map[int]liveLimits, len(v.on)+1)
	maps.Copy(on, v.on)
	on[c.Device] = set(v.of(c.Device))
	if c.Device == AllDevices {
		for index, l := range on {
			if index != AllDevices {
				on[index] = set(l)
			}
		}
	}
	v.on = on
	return v
}

// jobChanges returns the limits of a job's budget, and of those it shares.
func (a *Arbiter) jobChanges(j *job) []limitChange {
	changes := make([]limitChange, 0, 3*len(a.devices))
	for _, d := range a.devices {
		for _, s := range j.shares() {
			if s == nil {
				continue
			}
			l := s.limits(d)
			if j.pending { // what the rule reserves for all of them is part of what it waits for
				l.Min = min(l.Min, s.budget.Limits(d.Index).Min)
			}
			changes = append(changes, limitChange{budget: s.budget, device: d, limits: l})
		}
		changes = append(changes, limitChange{budget: j.budget, device: d, limits: j.limits(d)})
	}
	return changes
}

// allChanges returns the limits of a job's budgets, and of those of its sessions.
func (a *Arbiter) allChanges(j *job) []limitChange {
	changes := a.jobChanges(j)
	for _, s := range j.sessions {
		changes = a.sessionChanges(changes, s)
	}
	return changes
}

// sessionChanges appends the limits of a session's budget. A dead one reserves nothing.
func (a *Arbiter) sessionChanges(changes []limitChange, s *session) []limitChange {
	for _, d := range a.devices {
		l := s.limits(d)
		if !s.alive() {
			l.Min = 0
		}
		changes = append(changes, limitChange{budget: s.budget, device: d, limits: l})
	}
	return changes
}

// limits are a shared budget's limits on a device.
func (s *shared) limits(d *device) accounting.Limits {
	if s.user != nil {
		return s.user.given(d).Limits
	}
	return accounting.Limits{Min: amount(s.rule.min, d), Max: s.rule.given(d).Max}
}

// setLimits writes limits into the ledger, and returns those that it changed
// (with what they were). With admit, a memory.min that is raised must have room, or
// nothing is changed.
func (a *Arbiter) setLimits(changes []limitChange, admit bool) (done []limitChange, refused *accounting.Refusal) {
	for _, c := range changes {
		old := c.budget.Limits(c.device.Index)
		if old == c.limits {
			continue
		}
		least := min(c.limits.Min, c.limits.Max)
		if admit && least > min(old.Min, old.Max) {
			refused = a.checkMin(c.budget, c.device, least)
		}
		if refused != nil {
			break
		}
		c.headroom = c.device.headrooms[c.budget]
		_ = a.ledger.SetLimits(c.budget, c.device.Index, c.limits) // it is there
		a.stirOwner(c.budget)
		a.keepHeadroom(c.budget, c.device, least)
		c.limits = old
		done = append(done, c)
	}
	if refused == nil {
		return done, nil
	}
	for i := len(done) - 1; i >= 0; i-- {
		c := done[i]
		_ = a.ledger.SetLimits(c.budget, c.device.Index, c.limits) // it is there
		a.stirOwner(c.budget)
		a.restoreHeadroom(c.budget, c.device, c.headroom)
	}
	return nil, refused
}

// afterLimits puts changed limits in force for what runs, and tells the clients.
func (a *Arbiter) afterLimits(now time.Time, j *job, done []limitChange) {
	for _, c := range done {
		a.enforce(now, c.budget, c.device.Index)
		for l := range owners(c.budget.Leases(c.device.Index)) {
			if !l.stale && !l.lost && l.session.alive() {
				a.words.Limit(l.id, l.budget())
			}
		}
	}
	for _, s := range j.sessions {
		for _, l := range s.leases {
			l.sum.SetStreamsMax(s.streamsMax())
		}
	}
}

// relimit computes a job's limits anew and puts them in force.
func (a *Arbiter) relimit(now time.Time, j *job) {
	done, _ := a.setLimits(a.allChanges(j), false)
	a.afterLimits(now, j, done)
}

// SetPolicy puts a new configuration in force, for running leases too. Limits that
// were changed live stay; what is lowered below what is held is over, as by SetJobLimits.
func (a *Arbiter) SetPolicy(now time.Time, p Policy) {
	defer a.turn(now)
	a.policy = p.normal()
	clear(a.changed)
	for _, d := range a.devices {
		d.rule, d.dirty, d.anew = a.policy.deviceRule(d.Device), true, true
		if a.policy.ChargeOverhead {
			clear(d.headrooms)
			d.headroom = 0
		}
		a.recap(now, d)
		a.recount(now, d)
	}
	a.applyRules(now)
	a.event(Event{Time: now, Kind: EventPolicy, Device: -1,
		Text: fmt.Sprintf("a configuration with %d rules is in force", len(p.Rules))})
}

// applyRules puts what the rules say in force for all jobs.
func (a *Arbiter) applyRules(now time.Time) {
	for _, j := range a.sortedJobs() {
		j.rule = a.ruleFor(j.request.Process)
		j.detached = a.exceeds(j.request, j.rule)
		if old := j.shared; a.shareFor(j) != old {
			a.moveJob(j, old)
		}
		a.relimit(now, j)
	}
	for _, l := range a.leases {
		a.noteChain(l) // jobs that moved may have brought more than there is room for
	}
	for p := range a.overs {
		a.squeeze(now, p)
	}
	for _, l := range a.leases {
		if l.stale || l.lost || !l.session.alive() {
			continue
		}
		if l.closed && !l.sum.Over() {
			l.closed = false
			a.flag(l)
		}
		a.words.Limit(l.id, l.budget())
	}
}

// moveJob puts a job under the shared budget that its rule says, or under none.
func (a *Arbiter) moveJob(j *job, old *shared) {
	j.shared = a.shareFor(j)
	a.stir(j)
	var parent *accounting.Budget
	if j.shared != nil {
		parent = j.shared.budget
	}
	if err := a.ledger.MoveBudget(j.budget, parent); err != nil {
		panic("arbiter: " + err.Error()) // a root is never below a job
	}
	a.dropShared(old)
}
