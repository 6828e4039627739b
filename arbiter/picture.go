package arbiter

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/figures"
)

// picture is a snapshot that is being made: of all that there is, or of some sessions, or of the leases alone.
type picture struct {
	a        *Arbiter
	now      time.Time
	state    figures.Snapshot
	leases   []*lease
	sessions []*session
	jobs     []*job
	budgets  map[*shared]*figures.BudgetState
}

// Snapshot returns the whole state. Version and the counters of messages are the caller's to fill in.
func (a *Arbiter) Snapshot(now time.Time) figures.Snapshot {
	p := a.picture(now)
	p.leases, p.sessions, p.jobs = slices.Collect(maps.Values(a.leases)), slices.Collect(maps.Values(a.sessions)), slices.Collect(maps.Values(a.jobs))
	p.sort()
	p.addLeases() // looks at their credit words, which the sums below depend on
	p.addMachine()
	p.addProcesses()
	return p.done()
}

// SnapshotOf returns the state of some sessions, with their leases and jobs, and without all else.
func (a *Arbiter) SnapshotOf(now time.Time, ids ...SessionID) figures.Snapshot {
	p := a.picture(now)
	for _, id := range ids {
		s := a.sessions[id]
		if s == nil {
			continue
		}
		p.sessions = append(p.sessions, s)
		p.leases = append(p.leases, s.leases...)
		if !slices.Contains(p.jobs, s.job) {
			p.jobs = append(p.jobs, s.job)
		}
	}
	p.sort()
	p.addLeases()
	p.addProcesses()
	return p.done()
}

// SnapshotOfLeases returns the state of all leases, and of nothing else.
func (a *Arbiter) SnapshotOfLeases(now time.Time) figures.Snapshot {
	p := a.picture(now)
	p.leases = slices.Collect(maps.Values(a.leases))
	p.sort()
	p.addLeases()
	return p.state
}

func (a *Arbiter) picture(now time.Time) *picture {
	return &picture{a: a, now: now, state: figures.Snapshot{TimeUnixNano: now.UnixNano()}}
}

// showsProcessor reports whether snapshots have the processor: a job or a lease is on it, a request waits for it,
// the configuration has a block for it, or its slots.max was set.
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
		if slices.Contains(j.on, d) {
			return true
		}
	}
	return false
}

// sort brings what is to be shown into its order.
func (p *picture) sort() {
	at := make(map[*device]int, len(p.a.devices))
	for i, d := range p.a.devices {
		at[d] = i
	}
	slices.SortFunc(p.leases, func(x, y *lease) int {
		return cmp.Or(cmp.Compare(at[x.device], at[y.device]), x.opened.Compare(y.opened), cmp.Compare(x.id, y.id))
	})
	slices.SortFunc(p.sessions, func(x, y *session) int {
		return cmp.Or(cmp.Compare(x.process.PID, y.process.PID), cmp.Compare(x.id, y.id))
	})
	slices.SortFunc(p.jobs, func(x, y *job) int { return cmp.Compare(x.id, y.id) })
}

func (p *picture) addLeases() {
	p.state.Leases = make([]figures.LeaseState, len(p.leases))
	for i, l := range p.leases {
		p.a.look(l)
		p.a.leaseState(&p.state.Leases[i], l, p.now)
	}
}

// addProcesses adds the sessions and jobs; budgets, where there are any, add up with them.
func (p *picture) addProcesses() {
	p.state.Processes = make([]figures.ProcessState, 0, len(p.sessions))
	for _, s := range p.sessions {
		p.state.Processes = append(p.state.Processes, s.processState())
	}
	p.state.Jobs = make([]figures.JobState, 0, len(p.jobs))
	for _, j := range p.jobs {
		p.addJob(j)
	}
}

// addHolders adds those who have slots of a device to its row, one line for each job.
func (p *picture) addHolders(d *device, to *figures.DeviceState) {
	lines := map[*job]int{}
	for _, h := range slices.SortedFunc(maps.Values(d.permits[permit.Slot]), oldestFirst) {
		i, known := lines[h.Job]
		if !known {
			i = len(to.Holders)
			lines[h.Job] = i
			to.Holders = append(to.Holders, h.Job.holderState(h, p.now))
		}
		to.Holders[i].Slots++
		switch {
		case d.permits[permit.Sole][owner{Job: h.Job}] != nil:
			to.Holders[i].Kind = figures.HoldsExclusive
		case d.permits[permit.Claim][owner{Job: h.Job}] != nil:
			to.Holders[i].Kind = figures.HoldsClaim
		}
	}
}

func (p *picture) addUsers() {
	people := p.a.peopleShown()
	slices.SortFunc(people, func(x, y *person) int { return cmp.Compare(x.uid, y.uid) })
	p.state.Users = make([]figures.UserState, 0, len(people))
	for _, who := range people {
		is := p.a.userState(who)
		is.Pressure = p.pressure(&who.gauge, is.Pressure)
		p.state.Users = append(p.state.Users, is)
	}
}

// pressure returns the pressure that a gauge shows, or the one that is given if it shows none.
func (p *picture) pressure(g *gauge, none figures.PressureState) figures.PressureState {
	if tracker := g.tracker; !tracker.IsZero() {
		return pressureState(&tracker, p.now)
	}
	return none
}

func (p *picture) addJob(j *job) {
	is := p.a.jobState(j, p.now)
	is.Pressure = p.pressure(&j.gauge, is.Pressure)
	p.state.Jobs = append(p.state.Jobs, is)
	for sh := range j.shares {
		if to := p.budgets[sh]; to != nil {
			to.Jobs = append(to.Jobs, uint64(j.id)) // of what is reserved for it, where it has no process
		}
	}
	for _, s := range j.sessions {
		for sh := range s.shares {
			if to := p.budgets[sh]; to != nil {
				p.a.addToBudget(to, s)
			}
		}
	}
	if j.shared != nil {
		return
	}
	for i := range p.state.Devices {
		d := &p.state.Devices[i]
		d.Reserved = d.Reserved.Plus(j.budget.Reserved(d.Index))
	}
}

// addMachine adds what is not of one lease, process or job.
func (p *picture) addMachine() {
	a, s := p.a, &p.state
	s.Stats = a.stats
	s.Counts = figures.RequestCounts{Waits: a.waits.state(), Refused: a.refusals.state()}
	s.Devices = make([]figures.DeviceState, len(a.devices))
	for i, d := range a.devices {
		to := &s.Devices[i]
		*to = a.deviceState(d, p.now)
		to.Reserved = a.reservedBelow(d)
		to.Pressure = p.pressure(&d.gauge, to.Pressure)
		s.Stats.InFlight += uint64(len(d.permits[permit.Slot]))
		p.addHolders(d, to)
	}
	s.Rules = a.ruleStates()
	s.Budgets, p.budgets = a.budgetStates()
	p.addUsers()
	queue := a.moment(p.now)
	s.Queue = make([]figures.TicketState, 0, len(a.tickets))
	for _, t := range queue.listed() {
		s.Queue = append(s.Queue, queue.ticketState(t))
		t.addToStats(p.now, &s.Stats)
	}
}

// done returns a snapshot to which all has been added.
func (p *picture) done() figures.Snapshot {
	p.state.Stats.Clients = uint64(len(p.state.Processes))
	p.state.Stats.Leases = uint64(len(p.state.Leases))
	sumUsers(&p.state)
	if !p.a.showsProcessor() {
		p.state.HideProcessor()
	}
	return p.state
}
