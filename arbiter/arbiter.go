package arbiter

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/reading"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
	"github.com/gpuarb/gpuarb/figures"
)

// Arbiter is the state of one machine. Make one with New. Not safe for
// concurrent use.
type Arbiter struct {
	policy   rules.Policy
	ledger   *accounting.Ledger
	devices  []*device // by index
	shareds  map[sharedKey]*shared
	limits   rules.Table // limits that were changed live, of whatever has any
	people   people
	jobs     map[JobID]*job
	sessions map[SessionID]*session
	leases   map[LeaseID]*lease

	tickets   map[TicketID]*ticket // requests that wait
	queue     []*ticket            // these, in the order in which they are served
	sorted    time.Time            // when queue was last brought into order
	decisions []Result             // since Decisions was called last
	asking    *ticket              // the request that the running call decides
	cycling   bool                 // cycle runs
	stale     bool                 // since the last cycle something has changed by which a waiting request may be decided
	cycleAt   time.Time            // when a cycle is to be run for frees that were reported; zero: not by itself
	looseAt   time.Time            // when the next loose search for a deadlock is due (deadlock.go); zero: never
	moved     bool                 // something has changed since the last search without the lock began
	suspected bool                 // a strict search without the lock is due
	searching bool                 // a search without the lock is being made
	undo      []func()             // of a copy of the books: what a try takes back at its end

	searchAgain    time.Time // when the next search without the lock may begin
	searchedStrict bool      // the last search without the lock was strict
	noticesDue     bool      // something has changed for requests that wait
	noticedAt      time.Time
	arrival        uint64 // number of the last request that arrived; it counts on over restarts of the daemon
	lastTicket     TicketID

	ticketsOf    map[uint32]int // by user
	ticketsOfPID map[int]int    // by process

	threads   int            // of leases whose slots are threads', all together
	threadsOf map[uint32]int // and by user

	strained []*gauge // where requests waited for bytes when pressures were measured last

	overs    map[account]bool // budgets that hold more than their limit; true: announced
	draining []*session       // ended, their memory not yet back
	waits    waitCounts
	refusals reasonCounts
	events   []Event // since Events was called last
	stats    figures.Stats

	lastJob     JobID
	lastSession SessionID
	lastLease   LeaseID
}

// account is a budget on a device.
type account struct {
	budget *accounting.Budget
	device int
}

// maxEvents is how many events are kept for a reader that does not come: the
// oldest half goes first.
const maxEvents = 8192

// New returns an arbiter without devices.
func New(policy rules.Policy) *Arbiter {
	a := &Arbiter{
		limits: make(rules.Table), ledger: accounting.NewLedger(),
		shareds:  make(map[sharedKey]*shared),
		people:   people{of: make(map[uint32]*person)},
		jobs:     make(map[JobID]*job),
		sessions: make(map[SessionID]*session),
		leases:   make(map[LeaseID]*lease),
		tickets:  make(map[TicketID]*ticket),
		overs:    make(map[account]bool), threadsOf: make(map[uint32]int),
		ticketsOf: make(map[uint32]int), ticketsOfPID: make(map[int]int),
	}
	a.ledger.Eased = a.changed
	a.policy = policy.InForce(a.limits)
	return a
}

// AddDevice makes a device known, or known again after it was lost: it has room for new
// leases, and the lost ones stay so. A device with the index of one that is there replaces
// its description.
func (a *Arbiter) AddDevice(now time.Time, d rules.Device) {
	defer a.cycle(now)
	known := a.device(d.Index)
	if known == nil {
		known = &device{Device: d, figures: make(map[int]ProcessUsage), byPID: make(map[int][]*lease), aparts: make(map[*lease]struct{}),
			policy: &a.policy}
		known.makeLimits()
		a.devices = append(a.devices, known)
		slices.SortFunc(a.devices, func(x, y *device) int { return cmp.Compare(x.Index, y.Index) })
		_ = a.ledger.AddDevice(d.Index, 0) // it is not there yet
		_ = a.ledger.Probe(&known.direct, nil, d.Index)
	}
	known.Device, known.found = d, d.Total
	known.live = a.limits[rules.Owner{Kind: rules.OfDevice, ID: uint64(d.Index)}]
	a.configure(known)
	if known.lost {
		known.lost = false
		known.unmanaged, known.unmanagedBy, known.began = 0, nil, time.Time{}
		clear(known.figures)
	}
	a.recap(now, known)
	a.renew(now, everyJob, false)
	a.event(Event{Time: now, Kind: EventDevice, Device: d.Index, Bytes: known.Total,
		Text: fmt.Sprintf(wording.DeviceCame, d, wording.Plain(d.Name), known.Total.Human())})
}

// configure has a device be as its rule says.
func (a *Arbiter) configure(d *device) {
	a.changed()
	d.rule = a.policy.ForDevice(d.Device)
	d.Total, d.totalFrom = d.found, cmp.Or(d.From, accounting.FromDriver)
	if d.rule.Memory > 0 {
		d.Total, d.totalFrom = d.rule.Memory, accounting.FromConfiguration
	}
}

// DriverDevice is the device on which a driver is counted that computes on the processor: the first of those whose rule
// names it. False: none does, and it is counted on the processor.
func (a *Arbiter) DriverDevice(name string) (index int, placed bool) {
	for _, d := range a.devices {
		if d.IsGPU() && slices.Contains(d.rule.Also, name) {
			return d.Index, true
		}
	}
	return 0, false
}

// Total is how many bytes a device has, as the configuration has it; 0 for one that is not known.
func (a *Arbiter) Total(index int) accounting.Bytes {
	if d := a.device(index); d != nil {
		return d.Total
	}
	return 0
}

// Lost reports whether a device is known, was lost, and has not come back.
func (a *Arbiter) Lost(index int) bool {
	d := a.device(index)
	return d != nil && d.lost
}

// LoseDevice marks a device lost: its leases are lost and hold nothing, as no context
// outlives its device; requests there are refused with ReasonDeviceLost, the other devices
// go on. Unknown indices are ignored.
func (a *Arbiter) LoseDevice(now time.Time, index int) {
	d := a.device(index)
	if d == nil || d.lost {
		return
	}
	defer a.cycle(now)
	d.lost = true
	a.changed()
	leases := slices.Collect(a.leasesOn(d))
	for _, l := range leases {
		a.empty(now, l)
	}
	a.sweep(now, d)
	a.event(Event{Time: now, Kind: EventDeviceLost, Device: index, Text: fmt.Sprintf(wording.DeviceLost, d, len(leases))})
}

// empty has a lease hold nothing whose device was lost.
func (a *Arbiter) empty(now time.Time, l *lease) {
	if a.leases[l.id] != l {
		return
	}
	if a.lose(l); !l.session.alive() { // nothing to wait for
		a.closeLease(now, l)
	}
}

// gone tells that the device of a lease is lost, and with it what it held, now or a moment ago.
func (l *lease) gone() bool { return l.lost || l.device.lost }

// lose takes from a lease all that it held on a device that is gone. Its word is closed and
// empty: whoever allocates asks, and is told.
func (a *Arbiter) lose(l *lease) {
	a.take(l, a.idle(l))
	l.closed, l.notify = true, false
	a.flag(l)
	a.takeStreams(l)
	l.lost = true
	l.Clear()
	l.apart = false
	delete(l.device.aparts, l)
	l.contexts = 0
	l.beyond = reading.Beyond{}
	l.word.Lost()
	a.look(l)
}

// Unresponsive marks a device that has not answered for some time. Everything goes on
// with what it said last. Unknown and lost devices are ignored.
func (a *Arbiter) Unresponsive(now time.Time, index int, silent time.Duration) {
	d := a.device(index)
	if d == nil || d.lost || d.hung {
		return
	}
	d.hung = true
	a.event(Event{Time: now, Kind: EventHung, Device: index, WaitedMs: silent.Milliseconds(), Text: fmt.Sprintf(wording.DeviceHangs, d, wording.Span(silent))})
}

// Responsive tells that a device which did not answer does again.
func (a *Arbiter) Responsive(now time.Time, index int) {
	d := a.device(index)
	if d == nil || !d.hung {
		return
	}
	d.hung = false
	a.event(Event{Time: now, Kind: EventHung, Device: index, Text: fmt.Sprintf(wording.DeviceAnswers, d)})
}

// Events returns the events since the last call, oldest first. If it is not called for long, the oldest are dropped.
func (a *Arbiter) Events() []Event {
	events := a.events
	a.events = nil
	return events
}

// event notes an event.
func (a *Arbiter) event(e Event) {
	if len(a.events) >= maxEvents {
		a.events = slices.Delete(a.events, 0, maxEvents/2)
	}
	if d := a.device(e.Device); d != nil {
		e.UUID, e.processor = d.UUID, !d.IsGPU()
	}
	a.events = append(a.events, e)
}

// leaseEvent notes an event with what it says of a lease. Without a text that is made when somebody wants it.
func (a *Arbiter) leaseEvent(now time.Time, l *lease, e Event) {
	e.Time, e.Device, e.Lease = now, l.device.Index, l.id
	e.about(&l.session.process)
	e.in(l.session.job)
	if e.Text == "" {
		e.program = l.session.name()
	}
	a.event(e)
}

// leastTold is how much more than when that was last told a lease has to have to be told of again.
const leastTold = 64 << 20

// grew tells of what a lease was granted, whenever it has come to have twice as much: however much a program asks for, that is
// some lines for each lease.
func (a *Arbiter) grew(now time.Time, l *lease, asked accounting.Bytes) {
	has := l.Granted()
	if has < 2*l.told || has < l.told.Plus(leastTold) && l.told > 0 {
		return
	}
	l.told = has
	a.leaseEvent(now, l, Event{Kind: EventGranted, What: AsksMemory, Requested: asked, Bytes: has, Limit: a.info(l).Budget})
}

// device returns the device with that index, or nil.
func (a *Arbiter) device(index int) *device {
	for _, d := range a.devices {
		if d.Index == index {
			return d
		}
	}
	return nil
}

// recap computes a device's capacity anew, and calls idle credit back where it
// has fallen below what is committed.
func (a *Arbiter) recap(now time.Time, d *device) {
	_ = a.ledger.SetCapacity(d.Index, d.grantable().Less(d.unmanaged)) // it is there
	if over := a.ledger.Overload(d.Index); over != nil && !d.lost {
		from, _ := a.candidates(nil, over)
		a.recall(nil, from, over)
	}
}

// Tick does what is due with time: once a second, and at [Arbiter.Due], is right.
func (a *Arbiter) Tick(now time.Time) {
	for p := range a.overs {
		a.squeeze(now, p)
	}
	a.expire(now)
	a.pass(now)
}
