package arbiter

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// This file describes leases, devices, jobs, budgets, users and waiting requests as rows of a snapshot (figures.Snapshot). snapshot.go puts
// the snapshot together.

// leaseState describes a lease. readUsage must have been called for it just before.
func (a *Arbiter) leaseState(l *lease, now time.Time) (to figures.LeaseState) {
	p := l.session.process
	granted := l.Granted()
	to = figures.LeaseState{
		PID: p.PID, User: p.User, UID: p.UID, Device: l.device.Index, State: l.state(),
		Used: l.lastUsed, Granted: granted, Credit: granted - l.lastUsed,
		Away: min(l.Away(), l.lastUsed), Budget: l.Max(), Min: l.Min(), Peak: l.peak, Overhead: l.extra.Overhead, Excess: l.extra.Excess,
		Streams: a.streams(l), StreamsMax: l.StreamsMax(), Contexts: l.contexts,
		Job: uint64(l.session.job.id), AgeSeconds: max(0, int64(now.Sub(l.opened)/time.Second)),
		Admitted: l.admitted, Denied: l.denied, AtMax: l.atMax, Command: p.Command, JobName: l.session.job.request.Name,
		NSPID: p.NSPID, Cgroup: p.Cgroup, AlsoIn: p.AlsoIn, Container: p.Container, Opened: l.opened, ID: uint64(l.id),
	}
	for sh := range l.session.shares {
		if to.Shared == "" || !sh.ofCgroup() { // the budget of the user or the rule, else that of the innermost cgroup
			to.Shared = sh.ownerName
		}
	}
	l.setBy(&to)
	to.Util, to.UnusedMs = l.util, l.unused(now).Milliseconds()
	a.activity(&to, l, now)
	if l.session.alive() && !l.lost {
		to.Pending = min(l.word.Pending(), l.lastUsed)
	}
	return to
}

// state returns the state of a lease.
func (l *lease) state() figures.State {
	switch {
	case l.gone():
		return figures.StateLost
	case !l.session.alive():
		return figures.StateDraining
	case l.Over():
		return figures.StateOver
	case l.unverified:
		return figures.StateUnverified
	case l.session.job.residence() != Resident:
		return figures.State(l.session.job.residence())
	case l.waits > 0:
		return figures.StateWaiting
	}
	return figures.StateRunning
}

// worse returns the state that comes first by precedence.
func worse(x, y figures.State) figures.State {
	for _, s := range [...]figures.State{
		figures.StateLost, figures.StateDraining, figures.StateOver,
		figures.StateUnverified, figures.StateStuck, figures.StateSuspending, figures.StateSuspended, figures.StateResuming, figures.StateWaiting,
	} {
		if x == s || y == s {
			return s
		}
	}
	return figures.StateRunning
}

// deviceState describes a device. readUsage must have been called for its leases just before.
func (a *Arbiter) deviceState(d *device, now time.Time) figures.DeviceState {
	sums, charged := a.ledger.Device(d.Index), d.chargedUnmanaged()
	state := figures.DeviceState{
		Index: d.Index, Vendor: d.Vendor, Name: d.Name, UUID: d.UUID, PCI: d.PCI, Parent: d.Parent, Lost: d.lost, Unresponsive: d.hung,
		Total: d.Total, TotalFrom: d.totalFrom, Reserve: d.reserve(), Capacity: sums.Limit.Less(charged),
		Granted: sums.Granted, Committed: sums.Committed.Less(charged), Used: d.peak.used, Peak: d.peak.max,
		Unmanaged: d.unmanaged, Overhead: sums.Overhead, Context: d.headroomCost(), Free: a.free(now, d),
		Streams: sums.Streams, SlotsMax: d.slotsMax(), SlotsCurrent: len(d.permits[permit.Slot]),
		SlotsScope: string(cmp.Or(d.rule.SlotScope, rules.ScopeJob)), Claims: len(d.permits[permit.Claim]),
		Leased: len(d.permits[permit.Claim])+len(d.permits[permit.Sole]) > 0, Queue: d.waiting,
		Admitted: d.admitted, Denied: d.denied, AtMax: d.atMax,
		UnmanagedBy: slices.Clone(d.unmanagedBy),
	}
	state.Unnamed, state.SlotsBy = d.unnamed, d.slotsBy()
	state.RecentPercent = d.recent.Percent(now)
	for i := range state.UnmanagedBy {
		u := &state.UnmanagedBy[i]
		u.AgeMs = max(0, now.Sub(u.Since).Milliseconds())
		if a.jobs[JobID(u.Job)] == nil { // the job has ended since the reading
			u.Job, u.JobName, u.Charged = 0, "", false
		}
	}
	for _, h := range d.permits[permit.Sole] {
		state.ExclusiveJob = uint64(h.Job.id)
	}
	return state
}

// activity sets whether a lease is active, and since when. A lease is active while one of its requests waits, and while it has a slot of a
// device with slots.max.
func (a *Arbiter) activity(to *figures.LeaseState, l *lease, now time.Time) {
	since := time.Time{}
	for _, t := range l.session.job.tickets {
		if t.lease == l && (since.IsZero() || t.place.Since.Before(since)) {
			since = t.place.Since
		}
	}
	for h := range l.slots {
		to.Slot = true
		if l.device.slotsMax() > 0 && (since.IsZero() || h.since.Before(since)) {
			since = h.since
		}
	}
	if to.Active = !since.IsZero(); to.Active {
		to.ActiveMs = max(0, now.Sub(since).Milliseconds())
	} else {
		to.IdleMs = to.UnusedMs
	}
}

// ticketState describes a waiting request.
func (m *queueView) ticketState(t *ticket) figures.TicketState {
	p, stand := t.process(), m.notice(t)
	state := figures.TicketState{
		Pos: stand.Position, Ticket: uint64(t.id), PID: p.PID, User: p.User, UID: p.UID, Device: -1,
		Wants: m.a.requestText(t), WantsBytes: m.a.wantsBytes(t), WaitedMs: max(0, stand.Waited.Milliseconds()),
		Reason: t.evaluation.reason.String(), Text: stand.Text, Job: uint64(t.job.id), JobName: t.job.request.Name, Command: p.Command,
	}
	if t.session == nil {
		state.Command = cmp.Or(t.job.request.Command, p.Command)
	}
	if !t.any {
		state.Device = t.narrowestLimit().device.Index
	}
	if d := m.elsewhere(t); d != nil {
		state.RoomOn = &d.Index
	}
	for _, j := range m.asked[t.id] {
		state.Asks = append(state.Asks, uint64(j.id))
	}
	state.Returns = t.kind == wantsReturn
	if first := m.a.aheadOf(t); first != nil {
		state.Behind = uint64(first.id)
		if at := t.narrowestLimit(); at.kind == limitsBytes && t.fitsButBlocked() {
			state.Kept = m.a.ledger.Available(at.budget(), at.device.Index)
		}
	}
	return state
}

// addToStats adds a waiting request to the figures of the queue.
func (t *ticket) addToStats(now time.Time, s *figures.Stats) {
	s.QueueDepth++
	s.OldestQueuedMs = max(s.OldestQueuedMs, uint64(max(0, now.Sub(t.place.Since).Milliseconds())))
	if r := &t.job.request; t.kind == wantsJob && (r.Claim || r.Any || r.Exclusive) {
		s.PendingClaimers++
	}
}

// processState describes a client.
func (s *session) processState() figures.ProcessState {
	p := s.process
	return figures.ProcessState{
		PID: p.PID, StartTicks: p.StartTicks, UID: p.UID, User: p.User, Command: p.Command,
		State: s.state(), Job: uint64(s.job.id), JobName: s.job.request.Name,
		NSPID: p.NSPID, Cgroup: p.Cgroup, AlsoIn: p.AlsoIn, Container: p.Container, ID: uint64(s.id),
	}
}

// state returns the state of a process: the worst of its own state and the states of its leases.
func (s *session) state() figures.State {
	state := figures.StateRunning
	if !s.alive() {
		state = figures.StateDraining
	}
	if s.waitsToStart() {
		state = worse(state, figures.StateWaiting)
	}
	for _, l := range s.leases {
		state = worse(state, l.state())
	}
	return state
}

// jobState describes a job. on is space for its device rows.
func (a *Arbiter) jobState(j *job, now time.Time, on []figures.JobDeviceState) figures.JobState {
	p := &j.request.Process
	state := figures.JobState{
		ID: uint64(j.id), Name: j.request.Name, UID: p.UID, User: p.User, Command: cmp.Or(j.request.Command, p.Command),
		State: figures.StateRunning, Run: j.run, PerProcess: j.Each(), StreamsMax: j.Streams().Max, StreamsBy: j.Streams().By,
		Rule: j.Rule.Name, PID: p.PID, AgeMs: max(0, now.Sub(j.opened).Milliseconds()),
		StillRuns: j.stillRuns(), Processes: make([]int, 0, len(j.sessions)), Devices: on, Bound: j.request.Cgroup, Allows: j.request.Allows.names(),
	}
	if j.request.Cgroup != "" {
		state.BoundTerms = new(j.request.Terms)
	}
	if j.around != nil {
		state.Inside = uint64(j.around.id)
	}
	if j.denial != nil {
		state.Denial, state.DenialMs = j.denial.text, max(0, now.Sub(j.denial.at).Milliseconds())
	}
	if r := j.residence(); r != Resident {
		state.State, state.Residence = figures.State(r), r
		state.ResidenceMs = max(0, now.Sub(j.suspension.asked).Milliseconds())
		state.Failure = j.suspension.failure
	}
	if j.run && j.pending { // for other jobs the state of the session shows it
		state.State = figures.StateWaiting
	}
	for _, s := range j.sessions {
		state.Processes = append(state.Processes, s.process.PID)
		state.State = worse(state.State, s.state())
	}
	slices.Sort(state.Processes)
	for _, d := range a.devices {
		on := j.deviceState(d)
		on.Suspended = a.gaveOn(j, d).bytes
		state.Devices = append(state.Devices, on)
	}
	return state
}

// setBy sets the settings that the limits of a lease come from. If several limits are equal, it names the narrowest.
func (l *lease) setBy(to *figures.LeaseState) {
	b := l.device.bounds()
	by := func(m rules.Memory) {
		if to.BudgetBy == "" && m.Max == to.Budget {
			to.BudgetBy = m.MaxBy
		}
		if to.MinBy == "" && m.Least() == to.Min && m.Min > 0 {
			to.MinBy = m.MinBy
		}
	}
	by(l.session.Memory(b))
	by(l.session.job.Memory(b))
	for sh := range l.session.shares {
		m := sh.memory(l.device)
		switch {
		case m.MaxBy == "":
		case sh.limit != nil:
			m.MaxBy = fmt.Sprintf(wording.ByFor, m.MaxBy, sh.state().Name)
		default:
			m.MaxBy += ", shared"
		}
		by(m)
	}
	to.StreamsBy = l.session.Streams().By
}

// usersShown returns the users with counts and the users with a limit.
func (a *Arbiter) usersShown() []*user {
	all := slices.Collect(maps.Values(a.users.byUID))
	for of, c := range a.limits {
		if uid := uint32(of.ID); of.Kind == rules.OfUser && a.users.byUID[uid] == nil {
			all = append(all, &user{uid: uid, name: c.User})
		}
	}
	return all
}

// userState describes a user; figures.Snapshot.Arrange adds up what the user has.
func (a *Arbiter) userState(p *user) figures.UserState {
	state := figures.UserState{UID: p.uid, Name: p.name, Max: accounting.Max,
		Counts: figures.RequestCounts{Waits: p.waits.state(), Refused: p.refusals.state()}}
	if u := a.limits[userOwner(p.uid)]; u != nil {
		for _, d := range a.devices {
			state.Max = min(state.Max, u.Memory(d.bounds()).Max)
		}
	}
	return state
}

// budgetStates describes the shared budgets, and the limits of users and cgroups without programs too, sorted by name. The map has the
// description of each shared budget, to which addToBudget adds usage.
func (a *Arbiter) budgetStates() ([]figures.BudgetState, map[*shared]*figures.BudgetState) {
	all := slices.Collect(maps.Values(a.shareds))
	for of, c := range a.limits {
		if of.Kind != rules.OfUser && of.Kind != rules.OfCgroup {
			continue
		}
		if key := capKey(of); a.shareds[key] == nil {
			all = append(all, &shared{key: key, limit: c, ownerName: c.String()})
		}
	}
	slices.SortFunc(all, func(x, y *shared) int {
		return cmp.Or(cmp.Compare(x.ownerName, y.ownerName), cmp.Compare(x.key.rule.String(), y.key.rule.String()), cmp.Compare(x.state().Name, y.state().Name))
	})
	states := make([]figures.BudgetState, 0, len(all))
	at := make(map[*shared]*figures.BudgetState, len(all))
	for _, s := range all {
		state := s.state()
		state.Devices = make([]figures.BudgetDeviceState, len(a.devices))
		for i, d := range a.devices {
			m := s.memory(d)
			on := figures.BudgetDeviceState{Device: d.Index, Min: m.Min, Max: m.Max, MaxBy: m.MaxBy, Free: m.Max}
			if s.budget != nil {
				on.Over = s.budget.Over(d.Index)
				if m.Max != accounting.Max {
					on.Free = a.ledger.Available(s.budget, d.Index)
				}
			}
			state.Devices[i] = on
		}
		states = append(states, state)
		at[s] = &states[len(states)-1]
	}
	return states, at
}

// addToBudget adds the usage of a process to the description of a shared budget above it.
func (a *Arbiter) addToBudget(to *figures.BudgetState, s *session) {
	if job, n := uint64(s.job.id), len(to.Jobs); n == 0 || to.Jobs[n-1] != job {
		to.Jobs = append(to.Jobs, job)
	}
	for _, l := range s.leases {
		i := slices.IndexFunc(to.Devices, func(on figures.BudgetDeviceState) bool { return on.Device == l.device.Index })
		if i >= 0 {
			to.Devices[i].Used = to.Devices[i].Used.Plus(l.lastUsed)
		}
	}
}

// state describes a shared budget, without its figures on devices.
func (s *shared) state() figures.BudgetState {
	if s.ofCgroup() {
		return figures.BudgetState{Name: wording.AllIn + s.ownerName, Scope: string(rules.ScopeCgroup), Cgroup: s.key.cgroup}
	}
	if s.limit != nil {
		streams := s.limit.Streams()
		state := figures.BudgetState{Name: wording.AllPrograms + s.limit.String(), Scope: string(rules.ScopeUser), UID: s.key.uid, StreamsBy: streams.By}
		if streams.Max < rules.NoStreams {
			state.Streams = streams.Max
		}
		return state
	}
	return figures.BudgetState{Name: s.ownerName, Rule: s.key.rule.String(), Scope: string(s.key.scope), UID: s.key.uid, Cgroup: s.key.cgroup}
}

// ruleStates describes the rules, in the order in which they are matched.
func (a *Arbiter) ruleStates() []figures.RuleState {
	states := make([]figures.RuleState, len(a.policy.Rules))
	for i, r := range a.policy.All() {
		streams := r.Streams()
		to := &states[i]
		*to = figures.RuleState{ID: r.ID, Name: cmp.Or(r.Key.Name, strconv.Itoa(i+1)), Title: r.Name, Scope: string(r.Scope),
			Streams: streams.Max, StreamsBy: streams.By, Devices: make([]figures.RuleDeviceState, len(a.devices))}
		for n, d := range a.devices {
			m := r.Memory(d.bounds())
			to.Devices[n] = figures.RuleDeviceState{Device: d.Index, Max: m.Max, MaxBy: m.MaxBy}
		}
	}
	return states
}

// deviceState describes a job's limits on a device, and what the job and the jobs inside it use there.
func (j *job) deviceState(d *device) figures.JobDeviceState {
	limits, by := j.limits(d), j.Memory(d.bounds())
	if j.Each() {
		s := j.newProcess()
		limits, by = s.limits(d), s.Memory(d.bounds())
	}
	state := figures.JobDeviceState{Device: d.Index, Min: limits.Min, Max: limits.Max, MinBy: by.MinBy, MaxBy: by.MaxBy, Reserved: j.budget.Reserved(d.Index), Unmanaged: j.charged(d)}
	for _, p := range j.used {
		if p.device == d {
			state.Used, state.Peak = p.whole.used.used, p.whole.used.max
		}
	}
	return state
}
