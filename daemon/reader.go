package daemon

// This file reads the devices, each in its own goroutine. scan.go makes the readers; reclaim.go and bypass.go use the
// readings.

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/daemon/inventory"
	"github.com/gpuarb/gpuarb/internal/procfacts"
)

const (
	// readEvery is the time between two readings of a device without events while the daemon is active.
	readEvery = time.Second
	// readFirst is the pause after which a device is read again if it still holds a dead process's memory. The pause
	// doubles up to readOften.
	readFirst = 200 * time.Microsecond
	readOften = 10 * time.Millisecond
	// readBurst is the number of early readings if many processes die one after another. In the long run there is one
	// early reading per readOften.
	readBurst = 1000
	// readPauseFactor sets the pause after a reading, as a multiple of its duration, up to readOften. Readings thus
	// take a tenth of the time. If many processes die in quick succession, one reading covers all of them.
	readPauseFactor = 9
	// contextPatience is how long a device is read often after a context was granted there. A driver takes a second or
	// two to make one.
	contextPatience = 5 * time.Second
	// hungAfter is how long a device may take to answer before it counts as hung. A card that resumes takes seconds.
	hungAfter = 5 * time.Second
	// startPatience is how long the start waits for the devices' first answers.
	startPatience = 2 * time.Second
)

// readIdle is the time between two readings of a device while the daemon is idle.
const readIdle = 10 * time.Second

func newReader(d *Daemon, index int) *reader {
	return &reader{d: d, index: index, wake: make(chan struct{}, 1), first: make(chan struct{}), names: map[int]named{}, gap: readFirst,
		pace: rate.NewLimiter(rate.Every(readOften), readBurst), since: d.now(), draining: map[*session]struct{}{}}
}

// run reads until ctx ends. Stop does not wait for it, because it may hang in the driver.
func (r *reader) run(ctx context.Context) {
	defer r.d.catchPanic(nil)
	began := r.d.now()
	compared := began // start of the last reading with compare set (see read)
	r.read(began, true, false)
	started := r.started()
	for r.wait(ctx, began, compared) {
		began = r.d.now()
		compare, early := began.Sub(compared) >= readEvery, false
		if compare {
			compared = began
		} else {
			early = r.awaited() || r.unread(began)
		}
		r.read(began, compare || early, early)
		started = started || r.started()
		r.findKeepers() // for dead processes whose memory is still in use
	}
}

// started closes r.first if readings have shown what the contexts of recovered programs take on the device. It reports whether it did:
// the daemon may then serve clients there.
func (r *reader) started() bool {
	r.d.lock()
	defer r.d.unlock()
	if r.d.arb.Recovering(r.index) {
		return false
	}
	close(r.first)
	return true
}

// wait waits until the next reading is due; false: ctx has ended.
func (r *reader) wait(ctx context.Context, began, compared time.Time) bool {
	ended := r.d.now()
	notBefore := ended.Add(min(readPauseFactor*ended.Sub(began), readOften))
	next := compared.Add(r.every()).Sub(r.d.now())
	if r.urgent() {
		next = min(next, r.gap)
		r.gap = min(2*r.gap, readOften)
	}
	if !r.pause(ctx, next, r.wake) {
		return false
	}
	for r.shouldSkip() {
		if !r.pause(ctx, readIdle, r.wake) {
			return false
		}
	}
	now := r.d.now()
	early := max(r.pace.ReserveN(now, 1).DelayFrom(now), notBefore.Sub(now))
	return early <= 0 || r.pause(ctx, early, nil)
}

// pause waits for a duration or until wake receives; false: ctx has ended.
func (r *reader) pause(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case <-r.d.after(d):
	case <-wake:
		r.gap = readFirst
	}
	return true
}

// urgent reports whether the next reading is due as soon as possible: a lease drains on this device, or a context was
// made there. After reclaimPatience the arbiter counts the memory as unmanaged, and reading often has no further use.
func (r *reader) urgent() bool {
	now := r.d.now()
	r.d.lock()
	defer r.d.unlock()
	for s := range r.draining {
		if now.Sub(s.died) <= reclaimPatience {
			return true
		}
	}
	return r.d.arb.Unread(r.index, now.Add(-contextPatience))
}

// unread reports whether readings have still to show contexts that were made on this device.
func (r *reader) unread(now time.Time) bool {
	r.d.lock()
	defer r.d.unlock()
	return r.d.arb.Unread(r.index, now.Add(-contextPatience))
}

// every returns the time between two readings of the device. A device that is lost, does not answer or is awaited by
// a request is always read often.
func (r *reader) every() time.Duration {
	if !r.lost && r.silent(r.d.now()) == 0 && !r.awaited() && r.d.idle() {
		return readIdle
	}
	return readEvery
}

// shouldSkip reports whether the daemon is idle and the device suspended, so that a reading would wake it for no
// user.
func (r *reader) shouldSkip() bool { return r.every() == readIdle && r.d.inv.Suspended(r.index) }

// read takes one reading. If compare is set, the arbiter compares it with the use of the leases, once a second: a
// difference counts only if it lasts from one such reading to the next. If early is set too, the reading comes before
// that second is over, because a context was made or a request awaits it. Every reading shows whose memory is free
// again.
func (r *reader) read(began time.Time, compare, early bool) {
	d := r.d
	var reading *arbiter.Reading
	if compare {
		reading = r.prepare()
	}
	waited := r.begin(compare)
	defer waited()
	usage, err := d.inv.Read(r.index)
	var utilisation map[int]int
	if err == nil && reading.Leased() {
		utilisation = d.inv.Utilisation(r.index)
	}
	r.end(err)
	if err != nil {
		d.log.Debug("cannot read the device", "device", r.index, "err", err)
		return
	}
	if compare {
		r.figures(reading, began, early, usage, utilisation)
	}
	d.lock()
	defer d.unlock()
	if d.stopping() {
		return
	}
	now, wasLost := d.now(), r.lost
	r.lost = usage.Lost
	d.arb.Responsive(now, r.index)
	switch {
	case usage.Lost:
		d.arb.LoseDevice(now, r.index)
	case wasLost:
		if dev, ok := d.deviceByIndex(r.index); ok {
			d.arb.AddDevice(now, d.deviceOf(dev))
		}
	case compare:
		reading.Apply(d.now())
	}
	r.drainedLocked(began, usage)
}

// prepare begins a reading that the arbiter compares with the use of the leases.
func (r *reader) prepare() *arbiter.Reading {
	d := r.d
	d.lock()
	defer d.unlock()
	return d.arb.Reading(r.index)
}

// figures passes the device's figures to the arbiter's reading, with the owner of each process. The daemon's lock
// must not be held.
func (r *reader) figures(to *arbiter.Reading, began time.Time, early bool, usage inventory.Usage, utilisation map[int]int) {
	u := arbiter.Usage{Device: r.index, Began: began, Early: early, Unnamed: !usage.ProcessesKnown, Utilisation: utilisation}
	jobs := sync.OnceValue(r.d.members)
	for _, p := range usage.Processes {
		pu := arbiter.ProcessUsage{PID: p.PID, Bytes: accounting.Bytes(p.Bytes)}
		r.describe(&pu, jobs)
		u.Processes = append(u.Processes, pu)
	}
	r.forgetNames(usage.Processes)
	to.Figures(u)
}

// begin records that a reading begins. The caller must call the function that it returns at the end of the reading. If
// compare is set, that function wakes the requests that wait for such a reading.
func (r *reader) begin(compare bool) (waited func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.failed {
		r.since = r.d.now()
	}
	r.asking = true
	compared := r.compared
	if !compare || compared == nil {
		return func() {}
	}
	r.compared = nil
	return func() { close(compared) }
}

// end records that the device has answered.
func (r *reader) end(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asking, r.failed = false, err != nil
}

// awaited reports whether a request waits for the next compared reading.
func (r *reader) awaited() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.compared != nil
}

// silent returns for how long the device has not answered; 0: no answer is outstanding.
func (r *reader) silent(now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.asking && !r.failed {
		return 0
	}
	return now.Sub(r.since)
}

// describe adds the process of a figure. A process with a lease on the device is known by its session. For other
// processes it adds the kernel's facts and the job, and for a dead process the process that keeps its memory.
func (r *reader) describe(p *arbiter.ProcessUsage, jobs func() members) {
	d := r.d
	d.lock()
	client := d.arb.HasLease(r.index, p.PID)
	keeper := d.keepers[p.PID]
	d.unlock()
	start, err := d.inv.StartTicks(p.PID)
	if keeper.command != "" {
		r.names[p.PID] = keeper
	} else if err != nil && r.names[p.PID].keeps {
		keeper = r.names[p.PID] // the session of the dead process has ended meanwhile
	}
	p.StartTicks, p.Keeper = start, keeper.command
	switch {
	case p.Keeper != "":
		p.UID, p.User, p.Command = keeper.uid, keeper.user, keeper.command
		if at, err := d.inv.StartTicks(keeper.pid); err == nil && at == keeper.start {
			p.Job = d.boundJob(keeper.pid)
		}
	case err != nil:
		p.Command = "?"
	case !client:
		n := r.nameOf(procfacts.Started{PID: p.PID, StartTicks: start}, jobs)
		p.UID, p.User, p.Command, p.Job, p.Bypass = n.uid, n.user, n.command, n.job, n.bypass
	}
}

// nameEvery is how long a name is used before it is read again. A process can make reading its name slow, which would
// otherwise delay every reading of its device. The job of the cgroup is looked up for each reading, because its budget is charged.
const nameEvery = 10 * time.Second

// nameOf returns the name, the owner and the job of a process without a lease.
func (r *reader) nameOf(p procfacts.Started, jobs func() members) named {
	now, bound := r.d.now(), r.d.boundJob(p.PID)
	if n, ok := r.names[p.PID]; ok && n.start == p.StartTicks && n.bound == bound && now.Sub(n.at) < nameEvery {
		return n
	}
	n := named{start: p.StartTicks, command: "?", job: bound, bound: bound, at: now}
	if facts, err := r.d.inv.Facts(p.PID); err == nil {
		n.uid, n.user, n.command = facts.UID, facts.User, facts.Command
		n.job, n.bypass = r.d.jobWithoutLease(jobs(), p, facts, bound)
	}
	r.names[p.PID] = n
	return n
}

// forgetNames drops the names of processes that the device no longer lists.
func (r *reader) forgetNames(listed []inventory.ProcessUsage) {
	maps.DeleteFunc(r.names, func(pid int, _ named) bool {
		return !slices.ContainsFunc(listed, func(p inventory.ProcessUsage) bool { return p.PID == pid })
	})
}

// awaitReading waits, for patience at most, until the arbiter has compared a reading of a device that began after the
// call. The lock must not be held.
func (d *Daemon) awaitReading(index int, patience time.Duration) {
	r := d.readers()[index]
	if r == nil {
		return
	}
	r.mu.Lock()
	if r.compared == nil {
		r.compared = make(chan struct{})
	}
	compared := r.compared
	r.mu.Unlock()
	signal(r.wake)
	select {
	case <-compared:
	case <-d.after(patience):
	case <-d.ctx.Done():
	}
}

// checkDevicesLocked tells the arbiter which devices do not answer. Their last figures stay in use.
func (d *Daemon) checkDevicesLocked() {
	now := d.now()
	for _, r := range d.readers() {
		if silent := r.silent(now); silent > hungAfter {
			d.arb.Unresponsive(now, r.index, silent)
		}
	}
}
