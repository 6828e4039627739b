package daemon

// This file reads the devices, each in a goroutine of its own. scan.go makes the readers; reclaim.go and bypass.go make something of what
// they read.

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
	// readEvery is how often a device is read when nothing happens there, while the daemon has something to do.
	readEvery = time.Second
	// readFirst is the pause after which a device is looked at again that had not given back
	// a dead process's memory; it doubles up to readOften.
	readFirst = 200 * time.Microsecond
	readOften = 10 * time.Millisecond
	// readBurst is how many readings may come early where many processes die one after
	// the other; in the long run there is one in each readOften.
	readBurst = 1000
	// readPauseFactor is how many times as long as a reading took there is none, up to readOften, so that readings take
	// a tenth of the time: where processes die one right after the other, what they had is found in one.
	readPauseFactor = 9
	// hungAfter is how long a device may take to answer before it counts as hung: a card
	// that wakes up takes seconds.
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

// run reads until ctx ends. Stop does not wait for it: it may hang in the driver.
func (r *reader) run(ctx context.Context) {
	defer r.d.catchPanic(nil)
	began := r.d.now()
	booked := began // when the last reading for the books began
	r.read(began, true)
	close(r.first)
	for r.wait(ctx, began, booked) {
		began = r.d.now()
		books := began.Sub(booked) >= readEvery
		if books {
			booked = began
		}
		r.read(began, books)
		r.nameKeepers() // of those whose memory no reading has found back
	}
}

// wait waits until the next reading is due; false: ctx has ended.
func (r *reader) wait(ctx context.Context, began, booked time.Time) bool {
	ended := r.d.now()
	notBefore := ended.Add(min(readPauseFactor*ended.Sub(began), readOften))
	next := booked.Add(r.every()).Sub(r.d.now())
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

// pause waits for a time, or until somebody wakes it; false: ctx has ended.
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

// hurried says whether the next reading is due as soon as may be: a lease drains there.
// What is not back after reclaimPatience the arbiter counts as unmanaged, by the name of
// who keeps it, and no haste is of use.
func (r *reader) urgent() bool {
	now := r.d.now()
	r.d.lock()
	defer r.d.unlock()
	for s := range r.draining {
		if now.Sub(s.died) <= reclaimPatience {
			return true
		}
	}
	return false
}

// every returns the time between two readings of the device. A device that is lost or does not answer is always read often, to
// see when that is over; so is one that a request waits for.
func (r *reader) every() time.Duration {
	if !r.lost && r.silent(r.d.now()) == 0 && !r.awaited() && r.d.idle() {
		return readIdle
	}
	return readEvery
}

// rests reports whether the daemon is idle and the device asleep, so that a reading would wake it for no user.
func (r *reader) shouldSkip() bool { return r.every() == readIdle && r.d.inv.Suspended(r.index) }

// read takes one reading. With books it is held against what the leases use, once a
// second: a transient has to last from one such reading to the next to be believed. Any
// reading tells whose memory is back.
func (r *reader) read(began time.Time, books bool) {
	d := r.d
	var reading *arbiter.Reading
	if books {
		reading = r.prepare()
	}
	waited := r.begin(books)
	defer waited()
	usage, err := d.inv.Read(r.index)
	r.end(err)
	if err != nil {
		d.log.Debug("cannot read the device", "device", r.index, "err", err)
		return
	}
	if books {
		r.figures(reading, began, usage)
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
	case books:
		reading.Book(d.now())
	}
	r.drainedLocked(began, usage)
}

// prepare begins a reading that is held against what the leases use.
func (r *reader) prepare() *arbiter.Reading {
	d := r.d
	d.lock()
	defer d.unlock()
	return d.arb.Reading(r.index)
}

// figures gives the arbiter's reading what the device said, with who each process is. No lock is held.
func (r *reader) figures(to *arbiter.Reading, began time.Time, usage inventory.Usage) {
	u := arbiter.Usage{Device: r.index, Began: began, Unnamed: !usage.ProcessesKnown}
	jobs := sync.OnceValue(r.d.members)
	for _, p := range usage.Processes {
		pu := arbiter.ProcessUsage{PID: p.PID, Bytes: accounting.Bytes(p.Bytes)}
		r.describe(&pu, jobs)
		u.Processes = append(u.Processes, pu)
	}
	r.forgetNames(usage.Processes)
	to.Figures(u)
}

// begin notes that a reading begins. It returns a function that tells those who wait for it that it is over.
func (r *reader) begin(books bool) (waited func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.failed {
		r.since = r.d.now()
	}
	r.asking = true
	booked := r.booked
	if !books || booked == nil {
		return func() {}
	}
	r.booked = nil
	return func() { close(booked) }
}

// end notes that the device has answered.
func (r *reader) end(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asking, r.failed = false, err != nil
}

// awaited reports whether a request waits for the next reading for the books.
func (r *reader) awaited() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.booked != nil
}

// silent says for how long the device has owed an answer; 0: it owes none.
func (r *reader) silent(now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.asking && !r.failed {
		return 0
	}
	return now.Sub(r.since)
}

// describe adds to a device's figure which process it is about. A process with a lease there is known by its
// session. For any other process it adds what the kernel tells, and its job; for a dead one, the process that keeps its memory.
func (r *reader) describe(p *arbiter.ProcessUsage, jobs func() members) {
	d := r.d
	d.lock()
	client := d.arb.HasLease(r.index, p.PID)
	keeper := d.keepers[p.PID]
	d.unlock()
	p.Keeper = keeper.command
	start, err := d.inv.StartTicks(p.PID)
	p.StartTicks = start
	switch {
	case p.Keeper != "":
		p.UID, p.User, p.Command = keeper.uid, keeper.user, keeper.command
	case err != nil:
		p.Command = "?"
	case !client:
		n := r.nameOf(procfacts.Started{PID: p.PID, StartTicks: start}, jobs)
		p.UID, p.User, p.Command, p.Job, p.Bypass = n.uid, n.user, n.command, n.job, n.bypass
	}
}

// nameEvery is how long a name is believed. A process can make the look at its name take
// long, which would otherwise hold up every reading of its device.
const nameEvery = 10 * time.Second

// nameOf returns the name, the owner and the job of a process without a lease.
func (r *reader) nameOf(p procfacts.Started, jobs func() members) named {
	now := r.d.now()
	if n, ok := r.names[p.PID]; ok && n.start == p.StartTicks && now.Sub(n.at) < nameEvery {
		return n
	}
	n := named{start: p.StartTicks, command: "?", at: now}
	if facts, err := r.d.inv.Facts(p.PID); err == nil {
		n.uid, n.user, n.command = facts.UID, facts.User, facts.Command
		n.job, n.bypass = r.d.jobWithoutLease(jobs(), p, facts)
	}
	r.names[p.PID] = n
	return n
}

// forgetNames drops the names of processes that the device does not list any more.
func (r *reader) forgetNames(listed []inventory.ProcessUsage) {
	maps.DeleteFunc(r.names, func(pid int, _ named) bool {
		return !slices.ContainsFunc(listed, func(p inventory.ProcessUsage) bool { return p.PID == pid })
	})
}

// awaitReading waits until the books have a reading of a device that began after the call, for patience at most. No lock is held.
func (d *Daemon) awaitReading(index int, patience time.Duration) {
	r := d.readers()[index]
	if r == nil {
		return
	}
	r.mu.Lock()
	if r.booked == nil {
		r.booked = make(chan struct{})
	}
	booked := r.booked
	r.mu.Unlock()
	signal(r.wake)
	select {
	case <-booked:
	case <-d.after(patience):
	case <-d.ctx.Done():
	}
}

// checkDevicesLocked finds the devices that do not answer. All goes on with what they said
// last.
func (d *Daemon) checkDevicesLocked() {
	now := d.now()
	for _, r := range d.readers() {
		if silent := r.silent(now); silent > hungAfter {
			d.arb.Unresponsive(now, r.index, silent)
		}
	}
}
