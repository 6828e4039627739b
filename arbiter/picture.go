package arbiter

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/pressure"
)

// Picture is a snapshot that is made in parts: of thousands of leases and programs it takes
// longer than anybody should hold the daemon's lock. Each row is exact at the moment that it
// was added, and rows of what has ended meanwhile are left out; what is asked for in one part
// is of one moment. [Arbiter.Picture] and Add want the lock, Sort and Done do not: what they read
// of leases, processes and holders stays as it was when these came.
type Picture struct {
	a        *Arbiter
	now      time.Time
	state    accounting.Snapshot
	devices  []*device
	leases   []*lease
	sessions []*session
	jobs     []*job
	holders  []*holder // as all above, those that are to be added yet
	people   []*person // likewise
	queue    *moment   // nil: devices and budgets are not there yet
	budgets  map[*shared]*accounting.BudgetState
	held     map[jobOn]int // the rows of holders
	hides    bool          // the processor is not shown
	strained []strained
}

// strained is a row of which the pressure is to be worked out yet, which is done without the lock.
type strained struct {
	set     func(*accounting.Snapshot, accounting.PressureState)
	tracker pressure.Tracker
}

// addPressure keeps a pressure as it is, for a row.
func (p *Picture) addPressure(g *gauge, set func(*accounting.Snapshot, accounting.PressureState)) {
	if !g.tracker.IsZero() {
		p.strained = append(p.strained, strained{set, g.tracker})
	}
}

// jobOn is a job that has a device, or slots of it.
type jobOn struct {
	job    *job
	device *device
}

// Picture begins a snapshot.
func (a *Arbiter) Picture(now time.Time) *Picture {
	p := &Picture{a: a, now: now, state: accounting.Snapshot{TimeUnixNano: now.UnixNano()}, devices: slices.Clone(a.devices), held: make(map[jobOn]int),
		leases:   slices.AppendSeq(make([]*lease, 0, len(a.leases)), maps.Values(a.leases)),
		sessions: slices.AppendSeq(make([]*session, 0, len(a.sessions)), maps.Values(a.sessions)),
		jobs:     slices.AppendSeq(make([]*job, 0, len(a.jobs)), maps.Values(a.jobs))}
	p.people = a.peopleShown()
	for _, d := range a.devices {
		p.holders = slices.AppendSeq(p.holders, maps.Values(d.permits[permit.Slot]))
	}
	p.hides = !a.showsProcessor()
	return p
}

// PictureOf begins a snapshot of some sessions, with their leases and jobs, and without all else.
func (a *Arbiter) PictureOf(now time.Time, ids ...SessionID) *Picture {
	p := &Picture{a: a, now: now, state: accounting.Snapshot{TimeUnixNano: now.UnixNano()}, devices: slices.Clone(a.devices), queue: &moment{}, hides: !a.showsProcessor()}
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
	return p
}

// PictureOfLeases begins a snapshot of all leases, and of nothing else.
func (a *Arbiter) PictureOfLeases(now time.Time) *Picture {
	return &Picture{a: a, now: now, state: accounting.Snapshot{TimeUnixNano: now.UnixNano()}, devices: slices.Clone(a.devices), queue: &moment{},
		leases: slices.AppendSeq(make([]*lease, 0, len(a.leases)), maps.Values(a.leases))}
}

// showsProcessor reports whether snapshots have the processor: a job or a lease is on it, a request waits for it,
// the configuration has a block for it, or its slots.max was set.
func (a *Arbiter) showsProcessor() bool {
	d := a.device(accounting.ProcessorIndex)
	switch {
	case d == nil:
		return false
	case d.rule.Match.Vendor == accounting.VendorCPU || d.slotsLive != nil || d.waiting > 0:
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

// Sort brings what is to be shown into its order.
func (p *Picture) Sort() {
	at := make(map[*device]int, len(p.devices))
	for i, d := range p.devices {
		at[d] = i
	}
	slices.SortFunc(p.leases, func(x, y *lease) int {
		if x.device != y.device {
			return cmp.Compare(at[x.device], at[y.device])
		}
		if !x.opened.Equal(y.opened) {
			return x.opened.Compare(y.opened)
		}
		return cmp.Compare(x.id, y.id)
	})
	slices.SortFunc(p.sessions, func(x, y *session) int {
		return cmp.Or(cmp.Compare(x.process.PID, y.process.PID), cmp.Compare(x.id, y.id))
	})
	slices.SortFunc(p.people, func(x, y *person) int { return cmp.Compare(x.uid, y.uid) })
	slices.SortFunc(p.jobs, func(x, y *job) int { return cmp.Compare(x.id, y.id) })
	slices.SortFunc(p.holders, func(x, y *holder) int {
		return cmp.Or(cmp.Compare(at[x.device], at[y.device]), oldestFirst(x, y))
	})
	p.state.Leases = make([]accounting.LeaseState, 0, len(p.leases))
	p.state.Processes = make([]accounting.ProcessState, 0, len(p.sessions))
	p.state.Jobs = make([]accounting.JobState, 0, len(p.jobs))
	p.state.Users = make([]accounting.UserState, 0, len(p.people))
}

// Rows is how many rows there are to be added.
func (p *Picture) Rows() int { return len(p.leases) + len(p.sessions) + len(p.jobs) + len(p.people) }

// Add adds up to so many rows: leases, users, then at once devices and budgets, holders, the queue, processes
// and jobs, whose budgets add up with them. False: all are there.
func (p *Picture) Add(rows int) (more bool) {
	rows = part(rows, &p.leases, p.addLease)
	if rows = part(rows, &p.people, p.addPerson); rows > 0 && p.queue == nil {
		p.addMachine()
	}
	rows = part(rows, &p.holders, p.addHolder)
	if p.queue != nil {
		rows = part(rows, &p.queue.listed, p.addTicket)
	}
	rows = part(rows, &p.sessions, p.addProcess)
	return part(rows, &p.jobs, p.addJob) <= 0
}

// addHolder adds a holder to its job's row at the device.
func (p *Picture) addHolder(h *holder) {
	if h.device.holder(h.owner) != h {
		return
	}
	to := &p.state.Devices[slices.Index(p.devices, h.device)]
	j, at, permits := h.Job, jobOn{h.Job, h.device}, &h.device.permits
	i, known := p.held[at]
	if !known {
		i = len(to.Holders)
		p.held[at] = i
		to.Holders = append(to.Holders, j.holderState(h, p.now))
	}
	to.Holders[i].Slots++
	switch {
	case permits[permit.Sole][owner{Job: j}] != nil:
		to.Holders[i].Kind = accounting.HoldsExclusive
	case permits[permit.Claim][owner{Job: j}] != nil:
		to.Holders[i].Kind = accounting.HoldsClaim
	}
}

// part calls do with up to so many of those that are left, and returns how many more there may be.
func part[T any](most int, left *[]T, do func(x T)) int {
	for ; most > 0 && len(*left) > 0; most-- {
		x := (*left)[0]
		*left = (*left)[1:]
		do(x)
	}
	return most
}

func (p *Picture) addTicket(t *ticket) {
	if !t.done {
		p.state.Queue = append(p.state.Queue, p.queue.ticketState(t))
		t.addToStats(p.now, &p.state.Stats)
	}
}

func (p *Picture) addProcess(s *session) {
	if p.a.sessions[s.id] == s {
		p.state.Processes = append(p.state.Processes, s.processState())
	}
}

func (p *Picture) addPerson(who *person) {
	row := len(p.state.Users)
	p.state.Users = append(p.state.Users, p.a.userState(who))
	p.addPressure(&who.gauge, func(s *accounting.Snapshot, is accounting.PressureState) { s.Users[row].Pressure = is })
}

func (p *Picture) addJob(j *job) {
	if p.a.jobs[j.id] != j {
		return
	}
	row := len(p.state.Jobs)
	p.state.Jobs = append(p.state.Jobs, p.a.jobState(j, p.now))
	p.addPressure(&j.gauge, func(s *accounting.Snapshot, is accounting.PressureState) { s.Jobs[row].Pressure = is })
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

func (p *Picture) addLease(l *lease) {
	if p.a.leases[l.id] != l {
		return
	}
	p.a.look(l)
	p.state.Leases = append(p.state.Leases, accounting.LeaseState{})
	p.a.leaseState(&p.state.Leases[len(p.state.Leases)-1], l, p.now)
}

// addMachine adds what is not of one lease, ticket, process or job.
func (p *Picture) addMachine() {
	a, s := p.a, &p.state
	s.Stats = a.stats
	s.Counts = accounting.RequestCounts{Waits: a.waits.state(), Refused: a.refusals.state()}
	s.Devices = make([]accounting.DeviceState, len(p.devices))
	for i, d := range p.devices {
		s.Devices[i] = a.deviceState(d, p.now)
		s.Devices[i].Reserved = a.reservedBelow(d)
		p.addPressure(&d.gauge, func(s *accounting.Snapshot, is accounting.PressureState) { s.Devices[i].Pressure = is })
		s.Stats.InFlight += uint64(len(d.permits[permit.Slot]))
	}
	s.Rules = a.ruleStates()
	s.Budgets, p.budgets = a.budgetStates()
	p.queue = a.moment(p.now)
	s.Queue = make([]accounting.TicketState, 0, len(a.tickets))
}

// Done returns the snapshot. Version and the counters of messages are the caller's to fill in.
func (p *Picture) Done() accounting.Snapshot {
	p.state.Stats.Clients = uint64(len(p.state.Processes))
	p.state.Stats.Leases = uint64(len(p.state.Leases))
	for i := range p.strained {
		x := &p.strained[i]
		x.set(&p.state, pressureState(&x.tracker, p.now))
	}
	sumUsers(&p.state)
	if p.hides {
		p.state.HideProcessor()
	}
	return p.state
}
