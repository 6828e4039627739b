package arbiter

import (
	"iter"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// This file chooses the idle jobs that make room for a waiting request, and lets suspended jobs return when no request waits. It is
// called once a second (tick.go). The chosen jobs are asked in suspend.go.

// looksForRoom is the largest number of waiting requests for which one call of makeRoomForWaiting looks for idle jobs.
const looksForRoom = 8

// askedAtOnce is the largest number of jobs that one call of makeRoomForWaiting asks for one request. If the request needs more jobs, a later
// call asks the others, after the first ones have answered.
const askedAtOnce = 64

// makeRoomForWaiting asks idle jobs to give their memory back for the first request of each queue, if the request has waited for
// evict.after. It passes over requests for devices on which a job is being asked already, because what that job gives back changes what
// requests lack there. If there are more than looksForRoom such requests, the requests take turns from call to call.
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
		chosen := a.victims(t, idle)
		for _, j := range chosen[:min(len(chosen), askedAtOnce)] {
			a.suspend(now, j, t, nil)
			for d := range j.suspension.had {
				busy[d] = true
			}
		}
	}
	a.lookedForRoom += looksForRoom
}

// devicesAsked returns the devices on which jobs held memory that are being asked to give it back.
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

// firstOfQueues returns the first request of each queue, if some limit has no room for that request. A request is the first if no earlier
// request waits at its narrowest limit, and none blocks it at a wider limit. Requests of absent clients are left out, and the requests
// behind them are not the first.
func (a *Arbiter) firstOfQueues() (first []*ticket) {
	taken := make(map[*limit]bool)
	for _, t := range a.queue {
		isFirst := !t.absent() && t.lacks(refusingLimit.hasNoRoom)
		for i := range t.candidates {
			s := &t.candidates[i]
			for n, f := range t.waitsOn(s) { // n 0: the narrowest limit
				isFirst = isFirst && !a.blocked(f.limit, t, s.heldSince) && (n > 0 || !taken[f.limit])
				taken[f.limit] = taken[f.limit] || n == 0
			}
		}
		if isFirst {
			first = append(first, t)
		}
	}
	return first
}

// victims returns the jobs to ask for a waiting request. It adds idle jobs in their order, the longest idle first, until their memory
// suffices for the request. Then it removes each job without which the others suffice as well. nil: all idle jobs together do not suffice,
// or the request also lacks something other than memory.
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
	for i := len(chosen) - 2; i >= 0; i-- { // the last job is needed: the others did not suffice without it
		lacks.with(chosen[i])
		if lacks.nothing() {
			chosen = slices.Delete(chosen, i, i+1)
		} else {
			lacks.without(chosen[i])
		}
	}
	if a.tooManySuspensions(chosen...) {
		return nil
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

// works reports whether a process of a job is inside an allocation, or has a lease on a device that does not answer. How busy such a
// process is cannot be known. If it returns false, it has noted all calls of the job until now.
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

// unread reports whether the last reading of how busy processes are on a device of a job began before a time. Devices that do not tell how
// busy processes are do not count.
func (j *job) unread(since time.Time) bool {
	return slices.ContainsFunc(j.sessions, func(s *session) bool {
		return s.alive() && slices.ContainsFunc(s.leases, func(l *lease) bool {
			return !l.lost && !l.device.toldUse.IsZero() && l.device.toldUse.Before(since)
		})
	})
}

// mayBeAsked reports whether a job may be asked to make room when it is idle.
func (a *Arbiter) mayBeAsked(now time.Time, j *job) bool {
	if !j.Rule.Evict.Evicts() || j.residence() != Resident || len(j.tickets) > 0 || len(j.inside) > 0 || j.pending || j.ended {
		return false
	}
	if s := j.suspension; s != nil && (now.Before(s.notUntil) || !s.resumed.IsZero() && now.Sub(s.resumed) < j.Rule.Evict.MinResident) {
		return false
	}
	return !a.noUnit(j) && !a.keepsPlace(j) && !a.tooManySuspensions(j)
}

// mayGiveTo reports whether an idle job may be asked to make room for a request. The job must be resident and hold memory on a candidate
// device. Its priority must be at most that of the request's job. Jobs inside the outermost job of the request are never asked for it.
func (a *Arbiter) mayGiveTo(j *job, t *ticket) bool {
	return j.residence() == Resident && j.priority() <= t.job.priority() && j.outermost() != t.job.outermost() &&
		slices.ContainsFunc(a.devices, func(d *device) bool { return t.on(d) && a.heldOn(j, d).bytes > 0 })
}

// shortage has the memory that a waiting request lacks on its candidate devices, and the memory that the chosen jobs would give back there.
type shortage struct {
	arb   *Arbiter
	any   bool // room on one of the devices is enough
	on    []shortOn
	gives map[*lease]accounting.Bytes // bytes that each lease would give back, read once, because clients allocate and free meanwhile
}

// shortOn is a device, with the limits that refuse a request there.
type shortOn struct {
	device *device
	at     []shortAt
}

// shortAt is a limit that refuses a request, with the bytes by which its sum falls if the chosen jobs give their memory back.
type shortAt struct {
	*accounting.Refusal
	gain accounting.Bytes
}

// shortOn returns the memory that a request lacks on its candidate devices. A device on which the request also lacks a permit is left out,
// because no idle job can give that. It returns nil if no device is left, or if a request that needs all its devices lacks a permit on one
// of them.
func (a *Arbiter) shortOn(t *ticket) *shortage {
	lacks := &shortage{arb: a, any: t.any, gives: make(map[*lease]accounting.Bytes)}
	for i := range t.candidates {
		s := &t.candidates[i]
		lacksPermit := s.lacks(func(f refusingLimit) bool { return f.noRoom && f.ofPermits() })
		switch {
		case lacksPermit && !t.any:
			return nil
		case lacksPermit, !s.lacks(refusingLimit.hasNoRoom):
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

// refusalsOn yields the limits that have no room for a request on a device.
func (a *Arbiter) refusalsOn(t *ticket, d *device) iter.Seq[*accounting.Refusal] {
	if t.lease != nil {
		return a.chargedNode(t).Refusals(t.memory(t.bytes))
	}
	least, b := t.reserves(d)
	return a.ledger.MinRefusals(b, d.Index, least, d.headroomFor(b, least))
}

// nothing reports whether the request would lack nothing if the chosen jobs gave their memory back.
func (s *shortage) nothing() bool {
	short := func(on shortOn) bool {
		return slices.ContainsFunc(on.at, func(at shortAt) bool { return at.gain < at.Short })
	}
	if s.any {
		return slices.ContainsFunc(s.on, func(on shortOn) bool { return !short(on) })
	}
	return !slices.ContainsFunc(s.on, short)
}

// without adds what a job would give back to the gains of the limits.
func (s *shortage) without(j *job) {
	s.each(j, func(at *shortAt, l *lease, n, overhead accounting.Bytes) {
		at.gain = at.gain.Plus(at.Yield(&l.Lease, n)).Plus(overhead)
	})
}

// with subtracts again what without has added for a job.
func (s *shortage) with(j *job) {
	s.each(j, func(at *shortAt, l *lease, n, overhead accounting.Bytes) {
		at.gain = at.gain.Less(at.Unyield(&l.Lease, n)).Less(overhead)
	})
}

// each calls do for each limit and each lease of a job that counts at the limit. The argument n is the number of bytes that the lease would
// give back. The argument overhead has the bytes that its contexts take beside that. Overhead counts at the device itself (no budget), and
// comes back only if the process ends with its unit. Leases of ended processes are left out, because their memory comes back in any case.
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

// isBelow reports whether the memory of a lease counts in a budget.
func (l *lease) isBelow(b *accounting.Budget) bool {
	for at := range l.session.budget.Chain() {
		if at == b {
			return true
		}
	}
	return false
}

// returnOnRoom lets suspended jobs with the setting evict.return "room" return. There must be room for all the memory that such a job held,
// and no request may wait on its devices. The job that has been suspended for longest comes first.
func (a *Arbiter) returnOnRoom(now time.Time) {
	var all []*job
	for _, id := range a.Jobs() {
		if j := a.jobs[id]; j.residence() == Suspended && j.evict().Returns() == rules.ReturnOnRoom && a.returning(j) == nil {
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
