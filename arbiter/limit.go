package arbiter

import (
	"iter"
	"maps"
	"time"

	"github.com/gpuarb/gpuarb/arbiter/permit"
)

// This file has the limits at which requests wait, and which waiting requests block later ones there. The cycle (cycle.go) begins with no blockers,
// and adds them in the order of the queue; judge.go asks whether a request is blocked.

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

// gate returns the limit whose fields waits and watched serve l. All permits and own slot limits of a device use those of its slots.
func (l *limit) gate() *limit {
	if l.kind == limitsBytes {
		return l
	}
	return &l.device.entry[permit.Slot]
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

// behind reports whether an earlier request blocks t at a limit. since is as for blockerOf.
func (a *Arbiter) behind(l *limit, t *ticket, since time.Time) bool {
	return a.blockerOf(l, t, since) != nil
}

// lines calls do with each limit of a device itself, and with the limits that the given shared budgets have on that device.
func (d *device) lines(shares iter.Seq[*shared], do func(*limit)) {
	for k := range d.entry {
		do(&d.entry[k])
	}
	do(&d.bytes)
	for sh := range shares {
		if l := sh.at[d]; l != nil {
			do(l)
		}
	}
}

// allLines calls do with each limit of all devices.
func (a *Arbiter) allLines(do func(*limit)) {
	for _, d := range a.devices {
		d.lines(maps.Values(a.shareds), do)
	}
}

// clearLines begins with an empty set of blocked limits.
func (a *Arbiter) clearLines() {
	a.allLines(func(l *limit) {
		clear(l.blockers)
		l.blockers, l.waits = l.blockers[:0], false
	})
}

// unwatch stops watching limits at which no request waits any more. The NOTIFY flag in a credit word stays set until the client reports the next
// free; Freed then clears it.
func (a *Arbiter) unwatch() {
	a.allLines(func(l *limit) { l.watched = l.watched && l.waits })
}

// waitsOn returns the limits at which a ticket waits on a device. If one of several devices is enough for the ticket, these are the limits
// that refuse it on that device. If it needs all of its devices, these are the limits, on that device, of each sort that refuses it on any
// of them.
func (t *ticket) waitsOn(s *spot) (at []full) {
	if t.any || len(t.spots) == 1 {
		return s.full
	}
	d := s.device
	on := func(of func(*device) *limit) {
		if t.lacks(func(f full) bool { return f.limit == of(f.device) }) {
			at = append(at, full{limit: of(d)})
		}
	}
	for sh := range t.shares {
		on(sh.limitOn)
	}
	on(func(d *device) *limit { return &d.wish })
	on(func(d *device) *limit { return &d.entry[permit.Slot] })
	on(func(d *device) *limit { return &d.bytes })
	return at
}

// blocksSince returns the time before which a job must have begun to hold memory on a device to pass a waiting request there. A request lets
// those jobs pass that have held memory there for longer than its own job; after age_after of its rule it lets none pass (the zero time).
func blocksSince(now time.Time, t *ticket, s *spot) time.Time {
	if after := t.job.Rule.AgeAfter; after > 0 && now.Sub(t.place.Since) >= after {
		return time.Time{}
	}
	return s.since
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

// noteSince notes since when the job of a request holds memory on its devices.
func (a *Arbiter) noteSince(t *ticket) {
	for i := range t.spots {
		t.spots[i].since = a.heldSince(t.job, t.spots[i].device)
	}
}

// bar marks the limits at which a request waits, and adds the request to the blockers of one limit on each of its devices: the narrowest that
// refuses it, so that it does not hold up requests that wait only at wider limits. If that is not a shared budget or an own
// slot limit, the request also blocks the permits that it asks for.
func (a *Arbiter) bar(now time.Time, t *ticket) {
	for i := range t.spots {
		s := &t.spots[i]
		narrowest := &s.device.bytes
		for i, f := range t.waitsOn(s) {
			if f.gate().waits = true; i == 0 {
				narrowest = f.limit
			}
		}
		if narrowest.kind != limitsWish && narrowest.shared == nil {
			for k := range s.asks.Limits(s.device.caps()) {
				s.device.entry[k].block(t, time.Time{})
			}
		}
		if narrowest.kind == limitsBytes {
			narrowest.block(t, blocksSince(now, t, s))
		}
	}
}
