package arbiter

import (
	"iter"
	"maps"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/permit"
)

// This file has the limits at which requests wait, and the waiting requests that block later ones there. The cycle (cycle.go) clears the
// blockers, and adds them again in the order of the queue. evaluate.go asks whether a request is blocked.

// limitOn returns the limit of a shared budget on a device.
func (s *shared) limitOn(d *device) *limit {
	l := s.at[d]
	if l == nil {
		l = &limit{device: d, shared: s}
		if s.at == nil {
			s.at = make(map[*device]*limit)
		}
		s.at[d] = l
	}
	return l
}

// limitOn returns the limit of the job of a cgroup on a device. Only opens of jobs of cgroups below wait there, because their reservations
// are part of its budget. Programs inside never wait for the budget of their own job.
func (j *job) limitOn(d *device) *limit {
	l := j.at[d]
	if l == nil {
		l = &limit{device: d, within: j}
		if j.at == nil {
			j.at = make(map[*device]*limit)
		}
		j.at[d] = l
	}
	return l
}

// budget returns the ledger budget that the limit bounds; nil: it bounds the device.
func (l *limit) budget() *accounting.Budget {
	if l.within != nil {
		return l.within.budget
	}
	return budgetOf(l.shared)
}

// watchState returns the limit whose fields waits and watched apply to l. All permit limits and own slot limits of a device share those of
// its slots.
func (l *limit) watchState() *limit {
	if l.kind == limitsBytes {
		return l
	}
	return &l.device.permitLimits[permit.Slot]
}

// block adds a request to the blockers of a limit. The request blocks later requests of the jobs that have held memory there only since
// the time since or later. block must be called in the order of the queue. A request is omitted if the last blocker already blocks all these
// jobs. So each blocker has an earlier since than the blocker before it.
func (l *limit) block(t *ticket, since time.Time) {
	if n := len(l.blockers); n > 0 && !since.Before(l.blockers[n-1].since) {
		return // the last blocker blocks the same jobs and more
	}
	l.blockers = append(l.blockers, blocker{t, since})
}

// neverHeld stands for the time since when a job holds memory, if it holds none. It is later than every real time.
var neverHeld = time.Unix(1<<40, 0)

// blockerOf returns the first request that blocks t at a limit; nil: none. since is the time since when the job of t has held memory there.
func (a *Arbiter) blockerOf(l *limit, t *ticket, since time.Time) *ticket {
	for _, b := range l.blockers {
		if b.ticket != t && !b.ticket.done && !since.Before(b.since) && a.compare(b.ticket, t) < 0 {
			return b.ticket
		}
	}
	return nil
}

// blocked reports whether an earlier request blocks t at a limit. since is as in blockerOf.
func (a *Arbiter) blocked(l *limit, t *ticket, since time.Time) bool {
	return a.blockerOf(l, t, since) != nil
}

// limitsFor calls do with each limit of the device itself, and with the limits of the given shared budgets on the device.
func (d *device) limitsFor(shares iter.Seq[*shared], do func(*limit)) {
	for k := range d.permitLimits {
		do(&d.permitLimits[k])
	}
	do(&d.bytes)
	for sh := range shares {
		if l := sh.at[d]; l != nil {
			do(l)
		}
	}
}

// allLimits calls do with each limit of each device.
func (a *Arbiter) allLimits(do func(*limit)) {
	for _, d := range a.devices {
		d.limitsFor(maps.Values(a.shareds), do)
	}
	for _, j := range a.jobs {
		for _, l := range j.at {
			do(l)
		}
	}
}

// clearBlockers empties the set of blocked limits.
func (a *Arbiter) clearBlockers() {
	a.allLimits(func(l *limit) {
		clear(l.blockers)
		l.blockers, l.waits = l.blockers[:0], false
	})
}

// unwatch stops watching limits at which no request waits any more. NOTIFY stays set in a credit word until the client reports its next
// free; Freed then clears it.
func (a *Arbiter) unwatch() {
	a.allLimits(func(l *limit) { l.watched = l.watched && l.waits })
}

// waitsOn returns the limits at which a ticket waits on one candidate device. If one device is enough for the ticket, or it has only one,
// these are the limits that refuse it there. If the ticket needs several devices, it waits on each of them at every limit that refuses it on
// one of them: if the slots of one device refuse the ticket, waitsOn returns the limit of slots of s.
func (t *ticket) waitsOn(s *candidate) (at []refusingLimit) {
	if t.any || len(t.candidates) == 1 {
		return s.refusedBy
	}
	d := s.device
	on := func(of func(*device) *limit) {
		if t.lacks(func(f refusingLimit) bool { return f.limit == of(f.device) }) {
			at = append(at, refusingLimit{limit: of(d)})
		}
	}
	for in := range t.reservesIn {
		on(in.limitOn)
	}
	for sh := range t.shares {
		on(sh.limitOn)
	}
	on(func(d *device) *limit { return &d.ownSlotLimit })
	on(func(d *device) *limit { return &d.permitLimits[permit.Slot] })
	on(func(d *device) *limit { return &d.bytes })
	return at
}

// blocksSince returns the time since when a job must have held memory on a device to pass a waiting request there. A request lets jobs pass
// that have held memory there for longer than its own job. After age_after of its rule it lets no job pass; the result is then the zero
// time.
func blocksSince(now time.Time, t *ticket, s *candidate) time.Time {
	if after := t.job.Rule.AgeAfter; after > 0 && now.Sub(t.place.Since) >= after {
		return time.Time{}
	}
	return s.heldSince
}

// heldSince returns since when a job has held memory on a device; neverHeld: it holds none. It is the earliest opening time among its
// leases with memory in use there, its sessions with a reservation there, and the job itself if that has a reservation.
func (a *Arbiter) heldSince(j *job, d *device) time.Time {
	since := neverHeld
	if j.budget.Account(d.Index).Committed == 0 {
		return since
	}
	first := func(t time.Time) {
		if t.Before(since) {
			since = t
		}
	}
	if j.budget.Limits(d.Index).Min > 0 {
		first(j.opened)
	}
	for l := range j.leasesOn(d) {
		if l.session.budget.Limits(d.Index).Min > 0 {
			first(l.session.opened)
		}
		if l.opened.Before(since) && l.Granted() > a.idle(l) {
			first(l.opened)
		}
	}
	return since
}

// noteHeldSince stores in the candidates of a ticket since when its job has held memory there. For the return of a job it stores that the
// job has held nothing. A job that kept a part of its memory must not pass the requests for which it made room.
func (a *Arbiter) noteHeldSince(t *ticket) {
	for i := range t.candidates {
		s := &t.candidates[i]
		if s.heldSince = neverHeld; t.kind != wantsReturn {
			s.heldSince = a.heldSince(t.job, s.device)
		}
	}
}

// blockLater marks the limits at which a request waits, and adds the request to the blockers of one limit on each candidate device. That is
// the narrowest limit that refuses it, so that requests that wait only at wider limits are not held up. If the narrowest limit is neither
// that of a budget nor an own slot limit, the request also blocks the permits that it asks for.
func (a *Arbiter) blockLater(now time.Time, t *ticket) {
	for i := range t.candidates {
		s := &t.candidates[i]
		narrowest := &s.device.bytes
		for i, f := range t.waitsOn(s) {
			if f.watchState().waits = true; i == 0 {
				narrowest = f.limit
			}
		}
		if narrowest.kind != limitsOwnSlots && narrowest.budget() == nil {
			for k := range s.asks.Limits(s.device.caps()) {
				s.device.permitLimits[k].block(t, time.Time{})
			}
		}
		if narrowest.kind == limitsBytes {
			narrowest.block(t, blocksSince(now, t, s))
		}
	}
}
