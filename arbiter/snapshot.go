package arbiter

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// Snapshot returns the whole state, exact at this moment: every word is read once,
// and the sums of devices and jobs are of those readings. Version and the counters
// of messages are the caller's to fill in.
func (a *Arbiter) Snapshot(now time.Time) accounting.Snapshot {
	s := accounting.Snapshot{TimeUnixNano: now.UnixNano(), Stats: a.stats}
	leases := make([]*lease, 0, len(a.leases))
	for _, l := range a.leases {
		a.look(l)
		leases = append(leases, l)
	}
	slices.SortFunc(leases, func(x, y *lease) int {
		if x.device != y.device {
			return cmp.Compare(x.device.Index, y.device.Index)
		}
		return byAge(x, y)
	})
	s.Leases = make([]accounting.LeaseState, len(leases))
	for i, l := range leases {
		a.leaseState(&s.Leases[i], l, now)
	}
	s.Devices = make([]accounting.DeviceState, len(a.devices))
	for i, d := range a.devices {
		s.Devices[i] = a.deviceState(d, now)
		s.Devices[i].Holders = holderStates(d, now)
	}
	s.Queue = a.ticketStates(now)
	a.queueStats(now, &s.Stats)
	s.Processes = a.processStates()
	s.Jobs = a.jobStates(now)
	a.addReserved(s.Devices)
	s.Budgets = a.budgetStates()
	s.Stats.Clients = uint64(len(s.Processes))
	s.Stats.Leases = uint64(len(leases))
	return s
}

// leaseState describes a lease that was just looked at.
func (a *Arbiter) leaseState(to *accounting.LeaseState, l *lease, now time.Time) {
	p := &l.session.process
	granted := l.sum.Granted()
	*to = accounting.LeaseState{
		PID: p.PID, User: p.User, UID: p.UID, Device: l.device.Index, State: l.state(),
		Used: l.seen, Granted: granted, Credit: granted - l.seen,
		Budget: l.sum.Max(), Min: l.sum.Min(), Peak: l.peak, Overhead: l.overhead, Excess: l.excess,
		Streams: l.sum.Streams(), StreamsMax: l.sum.StreamsMax(), Contexts: l.contexts,
		Job: uint64(l.session.job.id), AgeSeconds: max(0, int64(now.Sub(l.opened)/time.Second)),
		Admitted: l.admitted, Denied: l.denied, AtMax: l.atMax, Command: p.Command,
	}
	if sh := l.session.job.shared; sh != nil {
		to.Shared = sh.who
	}
	l.setBy(to)
	to.Slot = l.slot != nil || l.makers.slots > 0
	a.activity(to, l, now)
	if l.session.alive() && !l.lost {
		to.Pending = min(a.words.Pending(l.id), l.seen)
	}
}

// state is how a lease is doing.
func (l *lease) state() accounting.State {
	switch {
	case l.lost:
		return accounting.StateLost
	case !l.session.alive():
		return accounting.StateDraining
	case l.sum.Over():
		return accounting.StateOver
	case l.unverified:
		return accounting.StateUnverified
	case l.waits > 0:
		return accounting.StateWaiting
	}
	return accounting.StateRunning
}

// worse returns the state that comes first by precedence.
func worse(x, y accounting.State) accounting.State {
	for _, s := range [...]accounting.State{
		accounting.StateLost, accounting.StateDraining, accounting.StateOver,
		accounting.StateUnverified, accounting.StateWaiting,
	} {
		if x == s || y == s {
			return s
		}
	}
	return accounting.StateRunning
}

// deviceState describes a device whose leases were just looked at.
func (a *Arbiter) deviceState(d *device, now time.Time) accounting.DeviceState {
	sums := a.ledger.Device(d.Index)
	state := accounting.DeviceState{
		Index: d.Index, Vendor: d.Vendor, Name: d.Name, UUID: d.UUID, PCI: d.PCI, Lost: d.lost, Unresponsive: d.hung,
		Total: d.Total, Reserve: d.reserve(), Capacity: sums.Limit,
		Granted: sums.Granted, Committed: sums.Committed, Used: d.peak.seen, Peak: d.peak.most,
		Unmanaged: d.unmanaged, Overhead: d.overhead.Plus(d.headroom), Context: d.headroomCost(),
		Streams: sums.Streams, SlotsMax: d.slotsMax(), SlotsCurrent: len(d.holders),
		SlotsScope: string(cmp.Or(d.rule.SlotScope, ScopeJob)), Claims: d.claims,
		Leased: d.claims > 0 || d.exclusive != nil, Queue: len(d.queue),
		Admitted: d.admitted, Denied: d.denied, AtMax: d.atMax,
		UnmanagedBy: slices.Clone(d.unmanagedBy),
	}
	state.Unnamed, state.SlotsBy = d.unnamed, d.slotsBy()
	for i := range state.UnmanagedBy {
		u := &state.UnmanagedBy[i]
		u.AgeMs = max(0, now.Sub(u.Since).Milliseconds())
	}
	if d.exclusive != nil {
		state.ExclusiveJob = uint64(d.exclusive.id)
	}
	return state
}

// activity tells whether a lease is active, which it is from the moment that it queues
// until it has given its slot back, where there are slots to be had; and since when.
func (a *Arbiter) activity(to *accounting.LeaseState, l *lease, now time.Time) {
	since := time.Time{}
	for _, t := range l.session.job.tickets {
		if t.lease == l && (since.IsZero() || t.place.Since.Before(since)) {
			since = t.place.Since
		}
	}
	if h := l.slot; h != nil && l.device.slotsMax() > 0 && (since.IsZero() || h.since.Before(since)) {
		since = h.since
	}
	for _, m := range l.makers.all {
		h := m.slot
		if h != nil && l.device.slotsMax() > 0 && (since.IsZero() || h.since.Before(since)) {
			since = h.since
		}
	}
	if to.Active = !since.IsZero(); to.Active {
		to.ActiveMs = max(0, now.Sub(since).Milliseconds())
	} else {
		to.IdleMs = max(0, now.Sub(l.touched).Milliseconds())
	}
}

// ticketStates describes those who wait: device by device, in the order that they are
// served in there, each once.
func (a *Arbiter) ticketStates(now time.Time) []accounting.TicketState {
	states := make([]accounting.TicketState, 0, len(a.tickets))
	seen := make(map[*ticket]bool, len(a.tickets))
	m := a.moment(now)
	for _, d := range a.devices {
		for _, t := range d.queue {
			if !seen[t] {
				seen[t] = true
				states = append(states, m.ticketState(t))
			}
		}
	}
	return states
}

func (m *moment) ticketState(t *ticket) accounting.TicketState {
	p, stand := t.process(), m.standing(t)
	state := accounting.TicketState{
		Pos: stand.Position, Ticket: uint64(t.id), PID: p.PID, User: p.User, UID: p.UID, Device: -1,
		Wants: m.a.wants(t), WantsBytes: m.a.wantsBytes(t), WaitedMs: max(0, stand.Waited.Milliseconds()),
		Reason: t.why.reason.String(), Text: stand.Text, Job: uint64(t.job.id), Command: p.Command,
	}
	if t.session == nil {
		state.Command = cmp.Or(t.job.request.Command, p.Command)
	}
	if !t.any {
		d, _ := t.where()
		state.Device = d.Index
	}
	return state
}

// queueStats fills in the figures of the queue.
func (a *Arbiter) queueStats(now time.Time, s *accounting.Stats) {
	s.QueueDepth = uint64(len(a.tickets))
	for _, d := range a.devices {
		s.InFlight += uint64(len(d.holders))
	}
	for _, t := range a.tickets {
		s.OldestQueuedMs = max(s.OldestQueuedMs, uint64(max(0, now.Sub(t.place.Since).Milliseconds())))
		if r := &t.job.request; t.kind == wantsJob && (r.Claim || r.Any || r.Exclusive) {
			s.PendingClaimers++
		}
	}
}

// processStates describes the clients, by PID.
func (a *Arbiter) processStates() []accounting.ProcessState {
	sessions := slices.SortedFunc(maps.Values(a.sessions), func(x, y *session) int {
		if x.process.PID != y.process.PID {
			return cmp.Compare(x.process.PID, y.process.PID)
		}
		return cmp.Compare(x.id, y.id)
	})
	states := make([]accounting.ProcessState, len(sessions))
	for i, s := range sessions {
		p := &s.process
		states[i] = accounting.ProcessState{
			PID: p.PID, StartTicks: p.StartTicks, UID: p.UID, User: p.User, Command: p.Command,
			State: s.state(), Job: uint64(s.job.id),
		}
	}
	return states
}

// state is how a process is doing: as the worst of its leases.
func (s *session) state() accounting.State {
	state := accounting.StateRunning
	if !s.alive() {
		state = accounting.StateDraining
	}
	if s.pending {
		state = worse(state, accounting.StateWaiting)
	}
	for _, l := range s.leases {
		state = worse(state, l.state())
	}
	return state
}

// jobStates describes the jobs, by ID.
func (a *Arbiter) jobStates(now time.Time) []accounting.JobState {
	jobs := a.sortedJobs()
	states := make([]accounting.JobState, len(jobs))
	pids := make([]int, 0, len(a.sessions))
	on := make([]accounting.JobDeviceState, 0, len(jobs)*len(a.devices))
	for i, j := range jobs {
		p := &j.request.Process
		to := &states[i]
		*to = accounting.JobState{
			ID: uint64(j.id), UID: p.UID, User: p.User, Command: cmp.Or(j.request.Command, p.Command),
			State: accounting.StateRunning, Run: j.run, PerProcess: j.each(), StreamsMax: j.streamsMax(), StreamsBy: j.streamsGiven().by,
			Rule: j.rule.name, PID: p.PID, AgeMs: max(0, now.Sub(j.opened).Milliseconds()),
		}
		if j.pending {
			to.State = accounting.StateWaiting
		}
		first := len(pids)
		for _, s := range j.sessions {
			pids = append(pids, s.process.PID)
			to.State = worse(to.State, s.state())
		}
		to.Processes = pids[first:len(pids):len(pids)]
		slices.Sort(to.Processes)
		first = len(on)
		for _, d := range a.devices {
			on = append(on, j.deviceState(d))
		}
		to.Devices = on[first:len(on):len(on)]
	}
	return states
}

// setBy tells what a lease's limits come from: of several that are as tight, the narrowest.
func (l *lease) setBy(to *accounting.LeaseState) {
	chain := []given{l.session.given(l.device), l.session.job.given(l.device)}
	if sh := l.session.job.shared; sh != nil {
		g := given{Limits: sh.limits(l.device), maxBy: sh.by, minBy: sh.by}
		chain = append(chain, g)
	}
	for _, g := range chain {
		if to.BudgetBy == "" && g.Max == to.Budget {
			to.BudgetBy = g.maxBy
		}
		if to.MinBy == "" && g.Min == to.Min && g.Min > 0 {
			to.MinBy = g.minBy
		}
	}
	to.StreamsBy = l.session.streamsGiven().by
}

// budgetStates describes the budgets that jobs share, by name, after the leases were looked at.
func (a *Arbiter) budgetStates() []accounting.BudgetState {
	states := make([]accounting.BudgetState, 0, len(a.shareds))
	at := make(map[*shared]*accounting.BudgetState, len(a.shareds))
	for _, s := range slices.SortedFunc(maps.Values(a.shareds), func(x, y *shared) int {
		return cmp.Or(cmp.Compare(x.who, y.who), cmp.Compare(x.key.rule.String(), y.key.rule.String()))
	}) {
		states = append(states, accounting.BudgetState{Name: s.who, Rule: s.key.rule.String(), Scope: string(s.key.scope),
			UID: s.key.uid, Cgroup: s.key.cgroup, Devices: make([]accounting.BudgetDeviceState, len(a.devices))})
		to := &states[len(states)-1]
		for i, d := range a.devices {
			l := s.budget.Limits(d.Index)
			to.Devices[i] = accounting.BudgetDeviceState{Device: d.Index, Min: l.Min, Max: l.Max, Over: s.budget.Over(d.Index)}
		}
		at[s] = to
	}
	for _, j := range a.sortedJobs() {
		to := at[j.shared]
		if j.shared == nil || to == nil {
			continue
		}
		to.Jobs = append(to.Jobs, uint64(j.id))
		for _, s := range j.sessions {
			for _, l := range s.leases {
				i := slices.Index(a.devices, l.device)
				to.Devices[i].Used = to.Devices[i].Used.Plus(l.seen)
			}
		}
	}
	return states
}

// deviceState is a job's account on a device. A device that it never touched costs nothing.
func (j *job) deviceState(d *device) accounting.JobDeviceState {
	limits, by := j.limits(d), j.given(d)
	if j.each() {
		limits, by = j.perProcess(d), (&session{job: j}).given(d)
	}
	state := accounting.JobDeviceState{Device: d.Index, Min: limits.Min, Max: limits.Max, MinBy: by.minBy, MaxBy: by.maxBy, Reserved: j.budget.Reserved(d.Index)}
	for _, p := range j.peaks {
		if p.device == d {
			state.Used, state.Peak = p.seen, p.most
		}
	}
	return state
}

// addReserved sums up what is reserved on each device: budgets that jobs share, with what is
// below them, and jobs without.
func (a *Arbiter) addReserved(states []accounting.DeviceState) {
	for i, d := range a.devices {
		for _, s := range a.shareds {
			states[i].Reserved = states[i].Reserved.Plus(s.budget.Reserved(d.Index))
		}
		for _, j := range a.jobs {
			if j.shared == nil {
				states[i].Reserved = states[i].Reserved.Plus(j.budget.Reserved(d.Index))
			}
		}
	}
}

// holderStates describes the jobs that have a device or slots of it, the oldest first.
func holderStates(d *device, now time.Time) []accounting.HolderState {
	var states []accounting.HolderState
	at := make(map[*job]int, len(d.holders))
	for _, h := range sortedHolders(d) {
		j := h.key.job
		i, known := at[j]
		if !known {
			i = len(states)
			at[j] = i
			p := &j.request.Process
			states = append(states, accounting.HolderState{Job: uint64(j.id), PID: p.PID, UID: p.UID, User: p.User,
				Command: cmp.Or(j.request.Command, p.Command), Kind: accounting.HoldsSlot, AgeMs: max(0, now.Sub(h.since).Milliseconds())})
		}
		states[i].Slots++
		switch {
		case d.exclusive == j:
			states[i].Kind = accounting.HoldsExclusive
		case h.claim:
			states[i].Kind = accounting.HoldsClaim
		}
	}
	return states
}
