package arbiter_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// This file has the events that affect the whole queue: a device is lost and comes back, a session resumes, and the daemon restarts. If
// upsets is set, [drive] mixes these events with its other steps.

func (d *drive) upset() {
	switch d.rng.IntN(5) {
	case 0:
		d.loseDevice()
	case 1, 2:
		d.findDevice()
	case 3:
		d.resume()
	default:
		lost := slices.ContainsFunc(d.devices, func(dev *refDevice) bool { return dev.lost }) // the next daemon would not know of the loss
		if d.context == 0 && !lost {                                                          // with a cost of contexts the next daemon would have to read the devices first
			d.restart()
		}
	}
}

// loseDevice loses a device: all leases on it have nothing left.
func (d *drive) loseDevice() {
	dev, _ := pickOf(d, d.devices)
	if dev.lost {
		return
	}
	d.logf("device %d is lost", dev.index)
	dev.lost = true
	d.arb.LoseDevice(d.world.now, dev.index)
	for _, j := range d.jobs {
		for _, s := range j.sessions {
			for _, l := range s.leases {
				if l.device == dev && !l.gone {
					l.lost, l.gone = true, s.dead
					l.used, l.managed, l.costs, l.threads = 0, 0, 0, [4]refMaker{}
					l.word.told.Managed = 0
				}
			}
		}
	}
	d.tidy()
	d.settled(nil)
}

// findDevice brings a lost device back. Leases from before stay lost.
func (d *drive) findDevice() {
	lost := slices.DeleteFunc(slices.Clone(d.devices), func(dev *refDevice) bool { return !dev.lost })
	dev, ok := pickOf(d, lost)
	if !ok {
		return
	}
	d.logf("device %d is back", dev.index)
	dev.lost = false
	d.arb.AddDevice(d.world.now, rules.Device{Index: dev.index, Vendor: "nvidia", Name: "Test", Total: dev.total})
	d.settled(nil)
}

// resume resumes a session on another connection. Its client sends the waiting requests again, which keep their places,
// and reports the bytes and objects that it has: fewer than were granted, or more.
func (d *drive) resume() {
	s, ok := pickOf(d, d.sessions())
	if !ok {
		return
	}
	d.logf("session %d resumes", s.id)
	var again []*refTicket
	places := map[*refTicket]arbiter.Place{}
	for _, t := range slices.Clone(d.tickets) {
		if t.lease == nil || t.lease.session != s || d.find(t.id) != t { // it was served when another ticket was cancelled
			continue
		}
		again = append(again, t)
		places[t] = d.arb.Place(t.id)
		if !d.arb.Cancel(d.world.now, t.id, arbiter.ReasonCancelled) {
			d.fail("ticket %d does not wait", t.id)
		}
		d.withdrawn(arbiter.ReasonCancelled, func(x *refTicket) bool { return x == t })
		d.settled(nil)
	}
	for _, l := range s.leases {
		d.recount(l)
	}
	for _, t := range again {
		d.again(t, places[t])
	}
}

// recount makes the client of a lease report the bytes that it uses and the streams that it has.
func (d *drive) recount(l *refLease) {
	if l.lost {
		return
	}
	used := l.used
	switch d.rng.IntN(3) {
	case 0:
		used -= accounting.Bytes(d.rng.IntN(int(used) + 1))
	case 1:
		// Bytes that were taken without a daemon take a slot even if another client has it by now: the reference does
		// not model that order.
		if l.used > 0 && (d.scope != rules.ScopeThread || slices.ContainsFunc([]int{0, 1, 2, 3}, l.has)) {
			used += accounting.Bytes(d.rng.IntN(30))
		}
	}
	if d.rng.IntN(2) == 0 { // the bytes that it no longer uses were managed memory, as far as it had any
		l.managed = l.managed.Less(l.used.Less(used))
	} else { // they were other memory, as far as it had any
		l.managed = min(l.managed, used)
	}
	l.word.told.Managed = l.managed
	more := used.Less(l.used)
	n := d.look(&refTicket{kind: 'a', job: l.session.job, lease: l, n: more}, l.device, bars{})
	fits := !n.hardBytes && !n.hardShared && !n.hardUser && n.hardCgroups == 0 && d.fitsJob(l, more)
	idle := d.someIdle(l.device) // a recount does not reclaim idle credit of others
	l.word.recounted = true
	granted := d.arb.Recount(d.world.now, l.lease, used)
	l.word.granted, l.word.recounted = granted, false
	doubted := used.Less(granted - l.word.idle())
	d.arb.Freed(d.world.now, l.lease) // as the daemon does: earlier reports of the client were lost
	d.logf("session %d device %d: uses %d, not %d; doubted: %d", l.session.id, l.device.index, used, l.used, doubted)
	if fits != (doubted == 0) && !(fits && idle) {
		d.fail("%d bytes more fit: %v, and %d were doubted", more, fits, doubted)
	}
	if l.used = used - doubted; l.used == 0 {
		for i := range l.threads {
			l.threads[i].bytes = false
		}
	}
	d.settled(nil)
	if d.scope == rules.ScopeThread {
		return
	}
	var makers []arbiter.Maker
	for thread := range l.threads {
		m := &l.threads[thread]
		if m.streams > 0 && d.rng.IntN(2) == 0 {
			m.streams--
		}
		makers = append(makers, arbiter.Maker{Thread: uint32(thread), Streams: m.streams, Contexts: m.contexts})
	}
	d.arb.Objects(d.world.now, l.lease, makers)
	d.settled(nil)
}

// someIdle reports whether a lease on a device has idle bytes.
func (d *drive) someIdle(dev *refDevice) bool {
	return slices.ContainsFunc(d.allSessions(), func(s *refSession) bool {
		return slices.ContainsFunc(s.leases, func(l *refLease) bool { return l.device == dev && !s.dead && l.word.idle() > 0 })
	})
}

// fitsJob reports whether the limit of a lease's job lets it hold more bytes.
func (d *drive) fitsJob(l *refLease, more accounting.Bytes) bool {
	j := l.session.job
	return more == 0 || j.max == accounting.Max || usedBy(j, l.device, false)+more <= min(j.max, l.device.total)
}

// again resubmits a request, which keeps its place in the queue.
func (d *drive) again(t *refTicket, place arbiter.Place) {
	d.logf("ticket %d comes again", t.id)
	var got answer
	if t.kind == 'j' {
		req := t.job.request
		if req.Place = place; t.any || len(req.Devices) == 0 { // a device that was lost at its first arrival may be back
			from := slices.Clone(d.devices)
			if !t.any {
				t.job.on = nil
			}
			if len(req.Devices) > 1 && req.Devices[0] == 1 {
				slices.Reverse(from)
			}
			d.choose(t, slices.DeleteFunc(from, func(dev *refDevice) bool { return dev.lost }))
		}
		info, err := d.arb.OpenJob(d.world.now, req)
		t.job.id, got = info.ID, answer{ticket: info.Waiting, refused: reasonOf(err)}
	} else {
		what := map[byte]arbiter.RequestKind{'a': arbiter.WantsBytes, 's': arbiter.WantsStreams, 'c': arbiter.WantsContexts}[t.kind]
		o := d.askLease(arbiter.Request{Lease: t.lease.lease, What: what, Bytes: t.n, Managed: t.managed, Count: t.count, Thread: t.thread, Place: place})
		got = answer{o.Granted, o.Waiting, o.Reason}
	}
	d.resubmits = true
	if f := d.decided(t, got); f != nil && f.reason != arbiter.ReasonNone && t.kind == 'j' {
		d.forget(t.job)
	}
	d.resubmits = false
}

// restart replaces the arbiter by a new one, which restores jobs, sessions and leases from their records; then the
// clients send their waiting requests again, which keep their places.
func (d *drive) restart() {
	d.logf("the daemon is restarted")
	places := map[*refTicket]arbiter.Place{}
	for _, t := range d.tickets {
		places[t] = d.arb.Place(t.id)
	}
	tickets := d.tickets
	d.tickets = nil
	d.newArbiter()
	d.restoreJobs()
	for _, s := range d.allSessions() {
		d.restoreSession(s)
	}
	d.restoreLimits()
	for _, j := range slices.Clone(d.jobs) {
		for _, s := range slices.Clone(j.sessions) {
			if s.dead {
				d.arb.EndSession(d.world.now, s.id)
			}
		}
		if j.run && j.closed {
			d.arb.CloseJob(d.world.now, j.id)
		}
	}
	d.tidy()
	d.settled(nil)
	for _, t := range tickets {
		d.again(t, places[t])
	}
}

// newArbiter makes an arbiter that knows only the devices and the configuration.
func (d *drive) newArbiter() {
	var totals []accounting.Bytes
	for _, dev := range d.devices {
		totals = append(totals, dev.total)
	}
	now, pid := d.world.now, d.world.pid
	d.world = newWorld(d.t, d.policy, totals...)
	d.world.now, d.world.pid = now, pid
	for _, dev := range d.devices {
		if err := d.arb.SetSlots(now, dev.index, dev.slots); err != nil {
			d.fail("%v", err)
		}
	}
	d.pressures = newRefPressures()
}

// restoreJobs restores the jobs that have begun. The slots that each keeps follow from its request and from the present
// slots.max.
func (d *drive) restoreJobs() {
	for _, j := range d.jobs {
		if !j.run || j.pending {
			continue
		}
		if err := d.arb.RestoreJob(d.world.now, arbiter.RestoredJob{ID: j.id, Request: j.request, Devices: j.on, Released: j.released, Since: j.begun}); err != nil {
			d.fail("%v", err)
		}
		j.kept, j.spare = nil, nil
		if d.scope != rules.ScopeJob {
			j.tail = nil
		}
	}
	alone := map[*refDevice]bool{}
	for _, exclusive := range []bool{true, false} { // no other job keeps a slot on a device that is used exclusively
		for _, j := range d.jobs {
			for _, dev := range d.devices {
				if j.run && !j.pending && j.exclusive == exclusive && !alone[dev] {
					d.keep(j, dev)
					alone[dev] = exclusive && slices.Contains(j.kept, dev.index)
				}
			}
		}
	}
}

// allSessions returns the sessions of all jobs, also those of dead processes, the oldest first.
func (d *drive) allSessions() (all []*refSession) {
	for _, j := range d.jobs {
		all = append(all, j.sessions...)
	}
	slices.SortFunc(all, func(x, y *refSession) int { return cmp.Compare(x.id, y.id) })
	return all
}

// restoreSession restores a session and its leases.
func (d *drive) restoreSession(s *refSession) {
	if s.request.Job = 0; s.job.run {
		s.request.Job = s.job.id
	}
	id, err := d.arb.RestoreSession(d.world.now, s.request)
	if err != nil {
		d.fail("%v", err)
	}
	s.id = id
	if s.threads > 0 {
		d.arb.Threads(d.world.now, s.id, s.threads)
	}
	for _, l := range s.leases {
		if !l.gone {
			d.restoreLease(l)
		}
	}
}

// restoreLease restores a lease, with the credit word that its client has.
func (d *drive) restoreLease(l *refLease) {
	held := arbiter.RestoredLease{Device: l.device.index, Granted: l.word.granted, Away: l.managed, Lost: l.lost, Opened: l.opened}
	credit := l.word.idle()
	if l.lost || l.session.dead {
		held.Granted, credit = l.used, 0
	}
	if d.scope == rules.ScopeThread {
		held.Makers = []arbiter.Maker{}
	}
	byBytes := true
	for thread := range l.threads {
		m := &l.threads[thread]
		held.Streams, held.Contexts, m.bytes = held.Streams+m.streams, held.Contexts+m.contexts, false
		if n := m.streams + m.contexts; n > 0 && d.scope == rules.ScopeThread {
			held.Makers = append(held.Makers, arbiter.Maker{Thread: uint32(thread), Streams: m.streams, Contexts: m.contexts})
		}
		byBytes = byBytes && m.streams+m.contexts == 0
	}
	l.threads[0].bytes = byBytes && l.used > 0 // the records do not say which thread's bytes they are
	x := d.words.add(held.Granted, credit)
	x.told.Managed = l.managed
	info, err := d.arb.RestoreLease(d.world.now, l.session.id, held, x)
	if err != nil {
		d.fail("%v", err)
	}
	l.client = &client{w: d.world, session: l.session.id, lease: info.ID, word: x}
}

// restoreLimits sets again the limits that users set while the daemon ran.
func (d *drive) restoreLimits() {
	set := func(err error) {
		if err != nil {
			d.fail("%v", err)
		}
	}
	for _, j := range d.jobs {
		if j.live {
			set(d.arb.SetJobLimits(d.world.now, j.id, rules.Change{Device: rules.AllDevices, Max: ptr(size(j.max))}))
		}
	}
	for uid, most := range d.caps {
		set(d.arb.SetUserLimits(d.world.now, uid, "", rules.Change{Device: rules.AllDevices, Max: ptr(size(most))}))
	}
	for c, most := range d.cgroups {
		set(d.arb.SetCgroupLimits(d.world.now, refCgroups[c], rules.Change{Device: rules.AllDevices, Max: ptr(size(most))}))
	}
}

// attachLost expects the refusal of a lease on a lost device.
func (d *drive) attachLost(err error) {
	if reasonOf(err) != arbiter.ReasonDeviceLost {
		d.fail("a lease on a lost device: %v", err)
	}
}

// noDevice expects that a job was refused because a device that it needs is lost.
func (d *drive) noDevice(err error) {
	if !errors.Is(err, arbiter.ErrNoDevice) {
		d.fail("a job that has no device was answered %v", err)
	}
}

// TestQueueWithRestarts compares the arbiter with the reference over random steps, in which devices are lost and come back,
// sessions resume, and the daemon restarts.
func TestQueueWithRestarts(t *testing.T) { upsetAgainstReference(t, 80) }

// upsetAgainstReference is againstReference with such upsets.
func upsetAgainstReference(t *testing.T, seeds uint64) {
	const steps = 1500
	for part := range uint64(2) {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			t.Parallel()
			for i := range seeds / 2 {
				d := newDrive(t, 9_000_000+i*2+part, accounting.Bytes(5*(i%3/2)))
				d.upsets, d.capped = true, i%3 == 0
				d.run(steps)
			}
		})
	}
}
