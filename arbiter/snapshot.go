package arbiter

import (
	"cmp"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// This file makes snapshots of the state for the files below /gpu, the metrics and the web page. snapshotrows.go describes each object.
// figures.Snapshot.Arrange sorts a snapshot later, without the lock.

// snapshot is a snapshot in the making: of the whole state, of some sessions, or of the leases alone. Its rows are unordered.
// figures.Snapshot.Arrange sorts and sums them without the arbiter's lock.
type snapshot struct {
	a         *Arbiter
	now       time.Time
	state     figures.Snapshot
	budgets   map[*shared]*figures.BudgetState
	reserved  []accounting.Bytes // bytes reserved for jobs without a shared budget, by device, in the order of a.devices
	contexts  []accounting.Bytes // bytes reserved for contexts of all jobs, in the same order
	suspended []accounting.Bytes // bytes that suspended jobs gave back, in the same order

	onDevices []figures.JobDeviceState // free rows for the devices of jobs that are still to be added
}

// ofJob returns space for the device rows of one job.
func (p *snapshot) ofJob() []figures.JobDeviceState {
	n := len(p.a.devices)
	if len(p.onDevices) < n {
		return make([]figures.JobDeviceState, 0, n)
	}
	room := p.onDevices[:0:n]
	p.onDevices = p.onDevices[n:]
	return room
}

// Copy returns the whole state, unsorted. The caller fills in Version and the counters of messages. Copy goes through the jobs by age, and
// allocates all rows of a kind at once: jobs lie in memory in that order, and another order takes a third longer.
func (a *Arbiter) Copy(now time.Time) figures.Snapshot {
	p := a.newSnapshot(now)
	p.state.Leases = make([]figures.LeaseState, 0, len(a.leases))
	p.state.Processes = make([]figures.ProcessState, 0, len(a.sessions))
	p.state.Jobs = make([]figures.JobState, 0, len(a.jobs))
	p.onDevices = make([]figures.JobDeviceState, len(a.jobs)*len(a.devices))
	p.state.Budgets, p.budgets = a.budgetStates()
	for _, id := range a.Jobs() {
		j := a.jobs[id]
		for _, s := range j.sessions {
			p.addSession(s)
		}
		p.addJob(j)
	}
	p.addMachine() // after the leases, because the sums of the devices depend on the credit words read there
	return p.done()
}

// SnapshotOf returns the state of some sessions, with their leases and jobs only.
func (a *Arbiter) SnapshotOf(now time.Time, ids ...SessionID) figures.Snapshot {
	p := a.newSnapshot(now)
	var jobs []*job
	for _, id := range ids {
		s := a.sessions[id]
		if s == nil {
			continue
		}
		p.addSession(s)
		if !slices.Contains(jobs, s.job) {
			jobs = append(jobs, s.job)
		}
	}
	for _, j := range jobs {
		p.addJob(j)
	}
	state := p.done()
	state.Arrange()
	return state
}

// CopyOfLeases returns the state of all leases and nothing else, unsorted.
func (a *Arbiter) CopyOfLeases(now time.Time) figures.Snapshot {
	p := a.newSnapshot(now)
	p.state.Leases = make([]figures.LeaseState, 0, len(a.leases))
	for _, id := range a.Jobs() {
		for _, s := range a.jobs[id].sessions {
			p.addLeases(s)
		}
	}
	return p.state
}

// newSnapshot returns an empty snapshot.
func (a *Arbiter) newSnapshot(now time.Time) *snapshot {
	return &snapshot{a: a, now: now, state: figures.Snapshot{TimeUnixNano: now.UnixNano()}, reserved: make([]accounting.Bytes, len(a.devices)), contexts: make([]accounting.Bytes, len(a.devices)), suspended: make([]accounting.Bytes, len(a.devices))}
}

// showsProcessor reports whether snapshots include the processor: a job or a lease is on it, a request waits for it, the configuration has
// a block for it, or its slots.max was set.
func (a *Arbiter) showsProcessor() bool {
	d := a.device(accounting.ProcessorIndex)
	switch {
	case d == nil:
		return false
	case d.rule.Match.Vendor == accounting.VendorCPU || d.live != nil || d.waiting > 0:
		return true
	}
	for range a.leasesOn(d) {
		return true
	}
	for _, j := range a.jobs {
		if slices.Contains(j.devices, d) {
			return true
		}
	}
	return false
}

// addLeases adds the leases of a session.
func (p *snapshot) addLeases(s *session) {
	for _, l := range s.leases {
		p.a.readUsage(l)
		l.noteCalls(p.now)
		p.state.Leases = append(p.state.Leases, p.a.leaseState(l, p.now))
	}
}

// addSession adds a session with its leases.
func (p *snapshot) addSession(s *session) {
	p.addLeases(s)
	p.state.Processes = append(p.state.Processes, s.processState())
}

// addHolders adds the holders of a device's slots to its row, one line for each slot. figures.Snapshot.Arrange joins the lines of each job,
// and fills in what the job's row says.
func (p *snapshot) addHolders(d *device, to *figures.DeviceState) {
	slots, sole, claims := d.permits[permit.Slot], d.permits[permit.Sole], d.permits[permit.Claim]
	if len(slots) == 0 {
		return
	}
	to.Holders = make([]figures.HolderState, 0, len(slots))
	for _, h := range slots {
		line := figures.HolderState{Job: uint64(h.Job.id), Kind: figures.HoldsSlot, Slots: 1, Since: h.since, AgeMs: max(0, p.now.Sub(h.since).Milliseconds())}
		switch {
		case sole[owner{Job: h.Job}] != nil:
			line.Kind = figures.HoldsExclusive
		case claims[owner{Job: h.Job}] != nil:
			line.Kind = figures.HoldsClaim
		}
		to.Holders = append(to.Holders, line)
	}
}

// addUsers adds the users, sorted by user ID.
func (p *snapshot) addUsers() {
	people := p.a.usersShown()
	slices.SortFunc(people, func(x, y *user) int { return cmp.Compare(x.uid, y.uid) })
	p.state.Users = make([]figures.UserState, 0, len(people))
	for _, who := range people {
		is := p.a.userState(who)
		is.Pressure = p.pressure(&who.gauge)
		p.state.Users = append(p.state.Users, is)
	}
}

// pressure returns the pressure of a gauge; the zero value for a nil gauge.
func (p *snapshot) pressure(g *gauge) (none figures.PressureState) {
	if g == nil || g.tracker.IsZero() {
		return none
	}
	tracker := g.tracker
	return pressureState(&tracker, p.now)
}

// addJob adds a job, its usage to the shared budgets, and its reservations to the sums of devices.
func (p *snapshot) addJob(j *job) {
	is := p.a.jobState(j, p.now, p.ofJob())
	is.Pressure = p.pressure(j.gauge)
	p.state.Jobs = append(p.state.Jobs, is)
	for sh := range j.shares {
		if to := p.budgets[sh]; to != nil {
			to.Jobs = append(to.Jobs, uint64(j.id)) // a job without processes counts too, because it may have a reservation
		}
	}
	for _, s := range j.sessions {
		for sh := range s.shares {
			if to := p.budgets[sh]; to != nil {
				p.a.addToBudget(to, s)
			}
		}
	}
	for i, on := range is.Devices {
		p.suspended[i] = p.suspended[i].Plus(on.Suspended)
	}
	for i, on := range is.Devices {
		if j.around != nil {
			break // what j reserves is part of what the job around it reserves, and that job is added by itself
		}
		if p.contexts[i] = p.contexts[i].Plus(j.headroom(on.Device)); j.shared == nil {
			p.reserved[i] = p.reserved[i].Plus(on.Reserved)
		}
	}
}

// addMachine adds the rows and sums that do not belong to one lease, process or job.
func (p *snapshot) addMachine() {
	a, s := p.a, &p.state
	s.Stats = a.stats
	s.Counts = figures.RequestCounts{Waits: a.waits.state(), Refused: a.refusals.state()}
	queue := a.viewQueue(p.now)
	s.Devices = make([]figures.DeviceState, len(a.devices))
	for i, d := range a.devices {
		to := &s.Devices[i]
		*to = a.deviceState(d, p.now)
		to.Suspended = p.suspended[i]
		to.Reserved = a.reservedBelow(d).Plus(p.reserved[i])
		queue.reserved[d] = to.Reserved.Plus(p.contexts[i]) // what allReserved finds, without a second walk over the jobs
		to.Pressure = p.pressure(&d.gauge)
		s.Stats.InFlight += uint64(len(d.permits[permit.Slot]))
		p.addHolders(d, to)
	}
	s.Rules = a.ruleStates()
	p.addUsers()
	s.Queue = make([]figures.TicketState, 0, len(a.tickets))
	for _, t := range queue.byDevice() {
		s.Queue = append(s.Queue, queue.ticketState(t))
		t.addToStats(p.now, &s.Stats)
	}
}

// done returns the snapshot after all rows were added.
func (p *snapshot) done() figures.Snapshot {
	p.state.Stats.Clients = uint64(len(p.state.Processes))
	p.state.Stats.Leases = uint64(len(p.state.Leases))
	if !p.a.showsProcessor() {
		p.state.HideProcessor()
	}
	return p.state
}
