package arbiter

import (
	"iter"
	"maps"
	"time"

	"github.com/gpuarb/gpuarb/arbiter/permit"
)

// This file has the limits at which requests wait, and which waiting requests block later ones there. The cycle (cycle.go) begins with no blockers,
// and adds them in the order of the queue; evaluate.go asks whether a request is blocked.

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

// watchState returns the limit whose fields waits and watched serve l. All permits and own slot limits of a device use those of its slots.
func (l *limit) watchState() *limit {
	if l.kind == limitsBytes {
		return l
	}
	return &l.device.permitLimits[permit.Slot]
}

// block adds a request to the blockers of a limit. It must be called in the order of the queue. If the last blocker blocks each job that
// the request would block, the request is left out, so that since falls from each blocker to the next.
func (l *limit) block(t *ticket, since time.Time) {
	if n := len(l.blockers); n > 0 && !since.Before(l.blockers[n-1].since) {
		return // the last blocker blocks the same jobs and more
	}
	l.blockers = append(l.blockers, blocker{t, since})
}

// neverHeld is the value of since for a job that holds no memory: later than every real time.
var neverHeld = time.Unix(1<<40, 0)

// blockerOf returns the first request that blocks t at a limit; nil: none does. since is when the job of t began to hold memory there.
func (a *Arbiter) blockerOf(l *limit, t *ticket, since time.Time) *ticket {
	for _, b := range l.blockers {
		if b.ticket != t && !b.ticket.done && !since.Before(b.since) && a.compare(b.ticket, t) < 0 {
			return b.ticket
		}
	}
	return nil
}

// blocked reports whether an earlier request blocks t at a limit. since is as for blockerOf.
func (a *Arbiter) blocked(l *limit, t *ticket, since time.Time) bool {
	return a.blockerOf(l, t, since) != nil
}

// limitsFor calls do with each limit of a device itself, and with the limits that the given shared budgets have on that device.
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

// allLimits calls do with each limit of all devices.
func (a *Arbiter) allLimits(do func(*limit)) {
	for _, d := range a.devices {
		d.limitsFor(maps.Values(a.shareds), do)
	}
}

// clearBlockers begins with an empty set of blocked limits.
func (a *Arbiter) clearBlockers() {
	a.allLimits(func(l *limit) {
		clear(l.blockers)
		l.blockers, l.waits = l.blockers[:0], false
	})
}

// unwatch stops watching limits at which no request waits any more. The NOTIFY flag in a credit word stays set until the client reports the next
// free; Freed then clears it.
func (a *Arbiter) unwatch() {
	a.allLimits(func(l *limit) { l.watched = l.watched && l.waits })
}

// waitsOn returns the limits at which a ticket waits on a device. If one of several devices is enough for the ticket, these are the limits
// that refuse it on that device. If it needs all of its devices, these are the limits, on that device, of each sort that refuses it on any
// of them.
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
	for sh := range t.shares {
		on(sh.limitOn)
	}
	on(func(d *device) *limit { return &d.ownSlotLimit })
	on(func(d *device) *limit { return &d.permitLimits[permit.Slot] })
	on(func(d *device) *limit { return &d.bytes })
	return at
}

// blocksSince returns the time before which a job must have begun to hold memory on a device to pass a waiting request there. A request lets
// those jobs pass that have held memory there for longer than its own job; after age_after of its rule it lets none pass (the zero time).
func blocksSince(now time.Time, t *ticket, s *candidate) time.Time {
	if after := t.job.Rule.AgeAfter; after > 0 && now.Sub(t.place.Since) >= after {
		return time.Time{}
	}
	return s.heldSince
}

// heldSince returns since when a job holds memory on a device: the earliest time at which a lease with memory in use there was opened, or
// the job, or a process of it, that has a reservation there. neverHeld: the job holds none.
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

// noteHeldSince notes since when the job of a request holds memory on its devices.
func (a *Arbiter) noteHeldSince(t *ticket) {
	for i := range t.candidates {
		t.candidates[i].heldSince = a.heldSince(t.job, t.candidates[i].device)
	}
}

// blockLater marks the limits at which a request waits, and adds the request to the blockers of one limit on each of its devices: the narrowest that
// refuses it, so that it does not hold up requests that wait only at wider limits. If that is not a shared budget or an own
// slot limit, the request also blocks the permits that it asks for.
func (a *Arbiter) blockLater(now time.Time, t *ticket) {
	for i := range t.candidates {
		s := &t.candidates[i]
		narrowest := &s.device.bytes
		for i, f := range t.waitsOn(s) {
			if f.watchState().waits = true; i == 0 {
				narrowest = f.limit
			}
		}
		if narrowest.kind != limitsOwnSlots && narrowest.shared == nil {
			for k := range s.asks.Limits(s.device.caps()) {
				s.device.permitLimits[k].block(t, time.Time{})
			}
		}
		if narrowest.kind == limitsBytes {
			narrowest.block(t, blocksSince(now, t, s))
		}
	}
}
