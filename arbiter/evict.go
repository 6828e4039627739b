package arbiter

import (
	"iter"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// This file chooses idle jobs that make room for a waiting request, and lets suspended jobs return when no request waits. tick.go calls it once
// a second. suspend.go asks the chosen jobs.

// looksForRoom is the number of waiting requests for which one call of makeRoomForWaiting looks for idle jobs.
const looksForRoom = 8

// makeRoomForWaiting asks idle jobs to give their memory back for the first request of each queue, if it has waited for evict.after. It asks
// no job for a device on which one is being asked already, because its answer changes what requests lack. If many requests are the first of
// their queues, each call looks at some of them, in turn.
func (a *Arbiter) makeRoomForWaiting(now time.Time) {
	if a.policy.EvictAfter <= 0 || len(a.queue) == 0 {
		return
	}
	busy := a.devicesAsked()
	first := slices.DeleteFunc(a.firstOfQueues(), func(t *ticket) bool {
		return now.Sub(t.place.Since) < a.policy.EvictAfter || slices.ContainsFunc(t.candidates, func(s candidate) bool { return busy[s.device] })
	})
	if len(first) == 0 {
		return
	}
	idle := a.idleJobs(now)
	for i := range min(len(first), looksForRoom) {
		t := first[(a.lookedForRoom+i)%len(first)]
		if slices.ContainsFunc(t.candidates, func(s candidate) bool { return busy[s.device] }) {
			continue
		}
		for _, j := range a.victims(t, idle) {
			a.suspend(now, j, t, nil)
			for d := range j.suspension.had {
				busy[d] = true
			}
		}
	}
	a.lookedForRoom += looksForRoom
}

// devicesAsked returns the devices with memory of jobs that are asked to give it back.
func (a *Arbiter) devicesAsked() map[*device]bool {
	all := make(map[*device]bool)
	for _, j := range a.jobs {
		if j.residence() == Suspending {
			for d := range j.suspension.had {
				all[d] = true
			}
		}
	}
	return all
}

// firstOfQueues returns the first request of each queue, if it waits for bytes: no earlier request waits at its narrowest limit or blocks it
// at a wider one. It omits requests of absent clients, which keep their places.
func (a *Arbiter) firstOfQueues() (first []*ticket) {
	taken := make(map[*limit]bool)
	for _, t := range a.queue {
		isFirst := !t.absent() && t.lacks(refusingLimit.hasNoRoom)
		for i := range t.candidates {
			s := &t.candidates[i]
			for i, f := range t.waitsOn(s) {
				isFirst = isFirst && !a.blocked(f.limit, t, s.heldSince) && (i > 0 || !taken[f.limit])
				taken[f.limit] = taken[f.limit] || i == 0
			}
		}
		if isFirst {
			first = append(first, t)
		}
	}
	return first
}

// victims returns the jobs to ask for a waiting request: idle jobs in the order of their last use until they suffice, without those that are
// then not needed. nil: all idle jobs together do not suffice, or the request does not lack memory alone.
func (a *Arbiter) victims(t *ticket, idle []*job) (chosen []*job) {
	lacks := a.shortOn(t)
	if lacks == nil {
		return nil
	}
	for _, j := range idle {
		if a.mayGiveTo(j, t) {
			lacks.without(j)
			if chosen = append(chosen, j); lacks.nothing() {
				break
			}
		}
	}
	if !lacks.nothing() {
		return nil
	}
	for i := len(chosen) - 2; i >= 0; i-- { // the last one was needed
		lacks.with(chosen[i])
		if lacks.nothing() {
			chosen = slices.Delete(chosen, i, i+1)
		} else {
			lacks.without(chosen[i])
		}
	}
	return chosen
}

// idleJobs returns the jobs that may be asked to make room, the longest idle first.
func (a *Arbiter) idleJobs(now time.Time) (all []*job) {
	since := make(map[*job]time.Time)
	for _, id := range a.Jobs() {
		j := a.jobs[id]
		if !a.mayBeAsked(now, j) || a.works(now, j) {
			continue
		}
		if idle, _ := a.times(j); now.Sub(idle) >= j.Rule.Evict.IdleAfter && !j.unread(idle.Add(j.Rule.Evict.IdleAfter)) {
			since[j], all = idle, append(all, j)
		}
	}
	slices.SortStableFunc(all, func(x, y *job) int { return since[x].Compare(since[y]) })
	return all
}

// works notes the calls of a job until now. It reports whether a process of the job is inside an allocation, or has a lease on a device that
// does not answer and so does not tell how busy the process is.
func (a *Arbiter) works(now time.Time, j *job) bool {
	for _, s := range j.sessions {
		for _, l := range s.leases {
			if l.noteCalls(now); s.alive() && !l.lost && (l.device.hung || l.word.Pending() > 0) {
				return true
			}
		}
	}
	return false
}

// unread reports whether a device on which a job has a lease tells how busy it is, and has not told so since a time.
func (j *job) unread(since time.Time) bool {
	return slices.ContainsFunc(j.sessions, func(s *session) bool {
		return s.alive() && slices.ContainsFunc(s.leases, func(l *lease) bool {
			return !l.lost && !l.device.toldUse.IsZero() && l.device.toldUse.Before(since)
		})
	})
}

// mayBeAsked reports whether a job may be asked to make room if it is idle.
func (a *Arbiter) mayBeAsked(now time.Time, j *job) bool {
	if !j.Rule.Evict.Evicts() || j.residence() != Resident || len(j.tickets) > 0 || len(j.inside) > 0 || j.pending || j.ended {
		return false
	}
	if s := j.suspension; s != nil && (now.Before(s.notUntil) || !s.resumed.IsZero() && now.Sub(s.resumed) < j.Rule.Evict.MinResident) {
		return false
	}
	return !a.noUnit(j) && !a.keepsPlace(j) && !a.fullOfSuspensions(j)
}

// mayGiveTo reports whether an idle job may be asked to make room for a request: it has no higher priority, and is not the request's own.
func (a *Arbiter) mayGiveTo(j *job, t *ticket) bool {
	return j.residence() == Resident && j.priority() <= t.job.priority() && j.outermost() != t.job.outermost() &&
		slices.ContainsFunc(a.devices, func(d *device) bool { return t.on(d) && a.heldOn(j, d).bytes > 0 })
}

// shortage has what a waiting request lacks on its candidate devices, less what the chosen jobs would give back.
type shortage struct {
	arb   *Arbiter
	any   bool // one of the devices is enough
	on    []shortOn
	gives map[*lease]accounting.Bytes // bytes that leases would give back, as they were read first: clients free all the time
}

// shortOn has the limits that refuse a request on a device.
type shortOn struct {
	device *device
	at     []shortAt
}

// shortAt is a limit that refuses a request, with the bytes by which its sum falls if the chosen jobs give their memory back.
type shortAt struct {
	*accounting.Refusal
	gain accounting.Bytes
}

// shortOn returns what a request lacks. nil: it lacks nothing that idle jobs could give.
func (a *Arbiter) shortOn(t *ticket) *shortage {
	lacks := &shortage{arb: a, any: t.any, gives: make(map[*lease]accounting.Bytes)}
	for i := range t.candidates {
		s := &t.candidates[i]
		permits := s.lacks(func(f refusingLimit) bool { return f.noRoom && f.ofPermits() })
		switch {
		case permits && !t.any:
			return nil
		case permits, !s.lacks(refusingLimit.hasNoRoom):
			continue
		}
		on := shortOn{device: s.device}
		for r := range a.refusalsOn(t, s.device) {
			on.at = append(on.at, shortAt{Refusal: r})
		}
		if len(on.at) > 0 {
			lacks.on = append(lacks.on, on)
		}
	}
	if len(lacks.on) == 0 {
		return nil
	}
	return lacks
}

// refusalsOn yields the limits without room for a request on a device.
func (a *Arbiter) refusalsOn(t *ticket, d *device) iter.Seq[*accounting.Refusal] {
	if t.lease != nil {
		return a.chargedNode(t).Refusals(t.memory(t.bytes))
	}
	least, b := t.reserves(d)
	return a.ledger.MinRefusals(b, d.Index, least, d.headroomFor(b, least))
}

// nothing reports whether the request has room.
func (s *shortage) nothing() bool {
	short := func(on shortOn) bool {
		return slices.ContainsFunc(on.at, func(at shortAt) bool { return at.gain < at.Short })
	}
	if s.any {
		return slices.ContainsFunc(s.on, func(on shortOn) bool { return !short(on) })
	}
	return !slices.ContainsFunc(s.on, short)
}

// without counts that a job gives its memory back.
func (s *shortage) without(j *job) {
	s.each(j, func(at *shortAt, l *lease, n, overhead accounting.Bytes) {
		at.gain = at.gain.Plus(at.Yield(&l.Lease, n)).Plus(overhead)
	})
}

// with undoes without.
func (s *shortage) with(j *job) {
	s.each(j, func(at *shortAt, l *lease, n, overhead accounting.Bytes) {
		at.gain = at.gain.Less(at.Unyield(&l.Lease, n)).Less(overhead)
	})
}

// each calls do for each limit and each lease of a job below it, with the bytes that the lease would give back, and with those of its contexts
// that count at that limit. Processes give their contexts back only if they end. Memory of ended processes is not given: the device frees it
// in any case.
func (s *shortage) each(j *job, do func(at *shortAt, l *lease, n, overhead accounting.Bytes)) {
	for _, on := range s.on {
		for l := range j.leasesOn(on.device) {
			if !l.session.alive() {
				continue
			}
			n, read := s.gives[l]
			if !read {
				if n = l.Granted().Less(s.arb.idle(l)); j.byUnit() {
					n = n.Plus(l.Charged())
				}
				s.gives[l] = n
			}
			for i := range on.at {
				at := &on.at[i]
				switch {
				case at.Budget == nil && j.byUnit():
					do(at, l, n, l.uncharged())
				case at.Budget == nil || l.isBelow(at.Budget):
					do(at, l, n, 0)
				}
			}
		}
	}
}

// isBelow reports whether a lease counts in a budget.
func (l *lease) isBelow(b *accounting.Budget) bool {
	for at := range l.session.budget.Chain() {
		if at == b {
			return true
		}
	}
	return false
}

// returnOnRoom lets suspended jobs whose rule says so return when no request waits on their devices and there is room. The one that was suspended
// first comes first.
func (a *Arbiter) returnOnRoom(now time.Time) {
	var all []*job
	for _, id := range a.Jobs() {
		if j := a.jobs[id]; j.residence() == Suspended && j.Rule.Evict.Returns() == rules.ReturnOnRoom && a.returning(j) == nil {
			all = append(all, j)
		}
	}
	slices.SortStableFunc(all, func(x, y *job) int { return x.suspension.asked.Compare(y.suspension.asked) })
	for _, j := range all {
		t := a.returnOf(j)
		if slices.ContainsFunc(t.candidates, func(s candidate) bool { return s.device.waiting > 0 }) {
			continue
		}
		a.assignPlace(now, t)
		if v := a.evaluate(t); v.fits != nil || !v.final && a.recallHelps(t) && a.evaluate(t).fits != nil {
			a.serveReturn(now, t)
		}
	}
}
