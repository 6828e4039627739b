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

// limitChange is a budget's new limits on a device.
type limitChange struct {
	budget *accounting.Budget
	device *device
	limits accounting.Limits

	kept accounting.Bytes // headroom, before the change; 0: none
}

// SetJobLimits changes a job's limits (its processes', where each has a budget of
// its own). All or nothing: ErrNoJob, ErrNoDevice, ErrRange, ErrPermission (the owner
// may only lower), or a *Result when a memory.min has no room. What is lowered below
// what is held closes the words and takes idle credit back before this returns.
func (a *Arbiter) SetJobLimits(now time.Time, id JobID, c rules.Change) error {
	edit, err := a.editJob(id, c)
	if err != nil {
		return err
	}
	return a.change(now, c, []limitEdit{edit})
}

// SoleProcess returns the process that is a job by itself; false where it is another kind
// of job, or none.
func (a *Arbiter) SoleProcess(id JobID) (rules.Process, bool) {
	j := a.jobs[id]
	if j == nil || j.run || len(j.sessions) == 0 {
		return rules.Process{}, false
	}
	return j.sessions[0].process, true
}

// SetProcessLimits changes the limits of one process, in all its sessions or in none;
// those of its job where that is a bare process's. Errors as of SetJobLimits, with ErrNoSession.
func (a *Arbiter) SetProcessLimits(now time.Time, c rules.Change, ids ...SessionID) error {
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
	job     *job           // nil: a user's, or a rule's
	owner   *rules.Process // for the audit trail
	live    *rules.Live
	old     rules.Live
	changes func() []limitChange            // of the ledger, by what is written in all of them
	whose   string                          // for the audit trail
	now     func(rules.Bounds) rules.Memory // the limits as they are
	streams func() rules.Streams
	was     []rules.Memory // now on each device, before the change
	had     int            // streams, likewise
}

// edit notes what is in force and writes a change over it, unless it makes no sense there or is not
// permitted. who names, in the error, whose limits they are.
func (a *Arbiter) edit(c rules.Change, who string, e limitEdit) (limitEdit, error) {
	force, err := c.Forces(e.owner.UID)
	if err == nil && !force && !c.Again && c.Namespace != e.owner.Namespace {
		err = c.NotOwner()
	}
	if err == nil && c.Device != rules.AllDevices && a.device(c.Device) == nil {
		err = noDevice(c.Device)
	}
	streams := e.streams()
	if err == nil {
		err = c.CheckStreams(streams, force)
	}
	for _, d := range a.devices {
		is := e.now(d.bounds())
		e.was = append(e.was, is)
		if err == nil && c.On(d.Index) {
			err = c.CheckMemory(is, d.bounds(), force)
		}
	}
	if err != nil {
		return limitEdit{}, fmt.Errorf("%s: %w", who, err)
	}
	e.old, e.had = *e.live, streams.Max
	*e.live = e.live.With(c, force, wording.Setter(c.UID, e.owner.UID, e.owner.User))
	return e, nil
}

// undo puts back what edits have written, the last first.
func undo(edits []limitEdit) {
	for _, e := range slices.Backward(edits) {
		*e.live = e.old
	}
}

// editJob writes a change into a job, unless it makes no sense there.
func (a *Arbiter) editJob(id JobID, c rules.Change) (limitEdit, error) {
	j := a.jobs[id]
	if j == nil {
		return limitEdit{}, fmt.Errorf("job %d: %w", id, ErrNoJob)
	}
	current, p := j.Memory, &j.request.Process
	if j.Each() {
		current = j.newProcess().Memory
	}
	who, whose := wording.Job(uint64(id), "", ""), wording.Owned(p.User, j.name())
	if !j.run && len(j.sessions) > 0 {
		who, whose = fmt.Sprintf("process %d", p.PID), wording.Owned(p.User, j.sessions[0].name())
	}
	return a.edit(c, who, limitEdit{job: j, owner: p, live: &j.Live, whose: whose, now: current, streams: j.Streams,
		changes: func() []limitChange { return a.allChanges(j) }})
}

// editProcess is editJob for one session.
func (a *Arbiter) editProcess(id SessionID, c rules.Change) (limitEdit, error) {
	s := a.sessions[id]
	if s == nil || !s.alive() {
		return limitEdit{}, noSession(id)
	}
	if !s.job.run {
		return a.editJob(s.job.id, c)
	}
	return a.edit(c, fmt.Sprintf("process %d", s.process.PID), limitEdit{job: s.job, owner: &s.process, live: &s.Live,
		whose: wording.Owned(s.process.User, s.name()), now: s.Memory, streams: s.Streams,
		changes: func() []limitChange { return a.sessionChanges(nil, s) }})
}

// Given is what a session's job was given, or had changed on every device, beyond what the
// rules say; a Size with Max set stands for nothing. streams are those in force.
func (a *Arbiter) Given(id SessionID) (most accounting.Size, streams int) {
	most = accounting.Size{Max: true}
	s := a.sessions[id]
	if s == nil {
		return most, 0
	}
	if set := cmp.Or(s.job.Live.Max(), s.job.Asked.Max); set != nil {
		most = *set
	}
	return most, s.job.Streams().Max
}

// change puts edits in force, or undoes them all and moves nothing.
func (a *Arbiter) change(now time.Time, c rules.Change, edits []limitEdit) error {
	defer a.cycle(now)
	var changes []limitChange
	for _, e := range edits {
		changes = append(changes, e.changes()...)
	}
	done, refused := a.setLimits(changes, true) // a raised memory.max can bring a memory.min back too
	if refused != nil {
		undo(edits)
		return a.minRefused(refused, reasonOf(refused))
	}
	a.enforceAll(now, done)
	for _, e := range edits {
		if c.Streams != nil {
			a.setStreamsMax(e.job)
		}
		a.audit(now, c, e)
	}
	return nil
}

// audit says who changed which limit of whose from what to what, device by device where they
// differ. What is in force as it was is no change, nor is what was only set again after a restart.
func (a *Arbiter) audit(now time.Time, c rules.Change, e limitEdit) {
	if c.Again {
		return
	}
	say := func(d *device, limit, from, to string) {
		event := Event{Time: now, Kind: EventLimits, Device: rules.AllDevices, UID: c.UID, ByPID: c.PID, User: e.owner.User, Setting: limit, From: from, To: to, Whose: e.whose}
		if e.job != nil {
			event.in(e.job)
		}
		whose := e.whose
		if d != nil {
			event.Device, whose = d.Index, fmt.Sprintf(wording.OnDevice, whose, d)
		}
		event.Text = fmt.Sprintf(wording.Changed, wording.Setter(c.UID, e.owner.UID, e.owner.User), limit, whose, from, to)
		a.event(event)
	}
	memory := func(d *device, limit string, from, to accounting.Bytes) {
		switch {
		case from == to:
		case from.Human() == to.Human():
			say(d, limit, from.Exact(), to.Exact())
		default:
			say(d, limit, from.Human(), to.Human())
		}
	}
	if is := e.streams().Max; c.Streams != nil && is != e.had {
		say(nil, "streams.max", streamsText(e.had), streamsText(is))
	}
	for i, d := range a.devices {
		if !c.On(d.Index) {
			continue
		}
		is := e.now(d.bounds())
		if c.Max != nil {
			memory(d, "memory.max", e.was[i].Max, is.Max)
		}
		if c.Min != nil {
			memory(d, "memory.min", e.was[i].Min, is.Min)
		}
	}
}

// streamsText writes a streams.max.
func streamsText(n int) string {
	if n == rules.NoStreams {
		return "max"
	}
	return strconv.Itoa(n)
}

// jobChanges returns the limits of a job's budget, and of those it shares.
func (a *Arbiter) jobChanges(j *job) []limitChange {
	changes := make([]limitChange, 0, 3*len(a.devices))
	for _, d := range a.devices {
		for s := range j.shares {
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

// allChanges returns the limits of a job's budgets, and of those of its sessions that follow from the job's.
func (a *Arbiter) allChanges(j *job) []limitChange {
	changes := a.jobChanges(j)
	for _, s := range j.sessions {
		if s.Follows() {
			changes = a.sessionChanges(changes, s)
		}
	}
	return changes
}

// sessionChanges appends those limits of a session's budget, and of the cgroups around it, that are not what they were. A dead one reserves nothing.
func (a *Arbiter) sessionChanges(changes []limitChange, s *session) []limitChange {
	put := func(b *accounting.Budget, d *device, l accounting.Limits) {
		if l != b.Limits(d.Index) { // of a job's thousand processes hardly any
			changes = append(changes, limitChange{budget: b, device: d, limits: l})
		}
	}
	for _, d := range a.devices {
		l := s.limits(d)
		if !s.alive() {
			l.Min = 0
		}
		put(s.budget, d, l)
	}
	for _, c := range s.cgroups {
		for _, d := range a.devices {
			put(c.budget, d, c.limits(d))
		}
	}
	return changes
}

// memory is a shared budget's limits on a device, with what they come from.
func (s *shared) memory(d *device) rules.Memory {
	if s.limit != nil {
		return s.limit.Memory(d.bounds())
	}
	m := s.rule.Memory(d.bounds())
	if d.IsGPU() { // as each program's own is of none but GPUs
		m.Min, m.MinBy = d.bounds().Amount(s.rule.Min), s.rule.Name+", shared"
	}
	return m
}

// limits are a shared budget's limits on a device.
func (s *shared) limits(d *device) accounting.Limits { return s.memory(d).Limits }

// inForce are limits as they are in force: where nothing is kept any more, or not yet, without Min.
func inForce(m rules.Memory, d *device, keeps bool) accounting.Limits {
	if !keeps {
		m.Min = 0
	}
	m.Min = min(m.Min, d.Total)
	return m.Limits
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
		least := c.limits.Least()
		if admit && least > old.Least() {
			refused = a.checkMin(c.budget, c.device, least)
		}
		if refused != nil {
			break
		}
		c.kept, _ = c.budget.Kept(c.device.Index)
		a.putLimits(c, c.device.headroomFor(c.budget, least))
		c.limits = old
		done = append(done, c)
	}
	if refused == nil {
		return done, nil
	}
	for _, c := range slices.Backward(done) {
		a.putLimits(c, c.kept)
	}
	return nil, refused
}

// putLimits writes limits, with the headroom that is kept for what they reserve.
func (a *Arbiter) putLimits(c limitChange, headroom accounting.Bytes) {
	_ = a.ledger.SetLimits(c.budget, c.device.Index, c.limits) // it is there
	_ = a.ledger.KeepBeside(c.budget, c.device.Index, headroom)
	a.changed()
}

// enforceAll puts changed limits in force for what runs, and tells the clients.
func (a *Arbiter) enforceAll(now time.Time, done []limitChange) {
	for _, c := range done {
		p := account{c.budget, c.device.Index}
		a.enforce(now, p.budget, p.device)
		for l := range owners(p.budget.Leases(p.device)) {
			if !l.lost && l.session.alive() {
				l.word.Limit(l.maxInForce())
			}
		}
	}
}

// setStreamsMax puts a job's streams.max in force.
func (a *Arbiter) setStreamsMax(j *job) {
	for _, s := range j.sessions {
		for _, l := range s.leases {
			l.SetStreamsMax(s.Streams().Max)
			a.relend(l)
		}
	}
}

// relimit puts limits in force, whether there is room for what they reserve or not.
func (a *Arbiter) relimit(now time.Time, changes []limitChange) {
	done, _ := a.setLimits(changes, false)
	a.enforceAll(now, done)
}
