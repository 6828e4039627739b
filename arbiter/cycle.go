package arbiter

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/arbiter/permit"
)

// The admission cycle, and the limits at which requests wait. Every exported call that may let a waiting request go on ends with a
// cycle. queue.go holds what happens to one request, judge.go whether it fits, deadlock.go the search for deadlocks.

// limit is a limit on one device at which requests wait.
type limit struct {
	device   *device
	kind     limitKind
	shared   *shared   // the shared budget whose bytes it limits; nil: it limits the device itself
	blockers []blocker // waiting requests that block later ones there, in the order of the last cycle
	waits    bool      // the last cycle found a request that waits there
	watched  bool      // the clients of the leases below it were told to report each free
}

// limitKind says what a limit limits.
type limitKind int

const (
	limitsBytes   limitKind = iota // the bytes of a device, or of a budget there that jobs share
	limitsPermits                  // the permits of a device: slots.max, a claim, or a job that has the device alone
	limitsWish                     // a program's own slot limit, which blocks no other request
)

// makeLimits makes the limits that a new device has by itself.
func (d *device) makeLimits() {
	for k := range d.entry {
		d.entry[k] = limit{device: d, kind: limitsPermits}
	}
	d.wish, d.bytes = limit{device: d, kind: limitsWish}, limit{device: d}
}

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

// full is a limit that refuses a ticket.
type full struct {
	*limit
	hard bool // the limit has no room; false: it has room, but earlier requests block the ticket there
}

// isHard reports whether the limit has no room.
func (f full) isHard() bool { return f.hard }

// ofBytes reports whether the limit is one of bytes.
func (f full) ofBytes() bool { return f.kind == limitsBytes }

// ofPermits reports whether the limit is one of permits.
func (f full) ofPermits() bool { return f.kind != limitsBytes }

// blocker is a waiting request that blocks later ones at a limit.
type blocker struct {
	ticket *ticket
	since  time.Time // requests of jobs that have held memory there since an earlier time are not blocked; the zero time: all are
}

// neverHeld is the value of since for a job that holds no memory: later than every real time.
var neverHeld = time.Unix(1<<40, 0)

// block adds a request to the blockers of a limit. It must be called in the order of the queue. If the last blocker blocks each job that
// the request would block, the request is left out, so that since falls from each blocker to the next.
func (l *limit) block(t *ticket, since time.Time) {
	if n := len(l.blockers); n > 0 && !since.Before(l.blockers[n-1].since) {
		return // the last blocker blocks the same jobs and more
	}
	l.blockers = append(l.blockers, blocker{t, since})
}

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

// changed notes that a waiting request can perhaps be decided now, or that a deadlock may have formed. The next cycle then judges all
// waiting requests.
func (a *Arbiter) changed() { a.stale, a.moved = true, true }

// cycle is the admission cycle. It decides the waiting requests that can be decided, until there is none:
//
//  1. If no request waits, it is done.
//  2. Refuse the requests whose deadline has passed. Sort the others by priority plus age, then arrival.
//  3. Start with an empty set of blocked limits.
//  4. For each request: refuse it if it can never fit. Grant it if it fits and no limit that it adds to is blocked. Refuse it if it
//     may not wait for what it lacks. Else it waits, and blocks its narrowest full limit on each of its devices.
//  5. If something was released meanwhile, or the verdict on an earlier request may be another one now, go to 2. Step 4 tells the clients
//     below a full limit, when a request first waits there, to report what they free: that counts as such a change.
//  6. The set stays: a new request is judged against it, without a cycle.
//  7. Stop watching limits at which no request waits any more.
//  8. Look for a deadlock, and go to 2 if one was ended.
//
// At the end, also if no request waits, it opens the credit words below limits that are no longer exceeded.
func (a *Arbiter) cycle(now time.Time) {
	if a.cycling {
		return
	}
	a.cycling, a.cycleAt = true, time.Time{}
	defer func() { a.cycling = false }()
	a.noticesDue = a.noticesDue || a.stale
	// Each pass decides a request or begins to watch a limit, so that the loop ends. The bound is for the case that this is wrong: a daemon
	// that hangs would be worse than a request that only a later cycle decides.
	for bound := 64 + 16*len(a.queue); a.stale && bound > 0; bound-- {
		a.stale = false
		if len(a.queue) == 0 { // 1
			break
		}
		a.refuseLate(now) // 2
		a.sort(now)
		a.clearLines() // 3
		for i := 0; i < len(a.queue) && !a.stale; {
			if a.consider(now, a.queue[i], a.queue[:i]) { // 4
				i++
			}
		}
		if a.stale { // 5
			continue
		}
		a.unwatch()               // 7
		if a.breakDeadlock(now) { // 8
			a.changed()
		}
	}
	a.checkAll(now)
}

// If more than gatheredAbove requests wait, one cycle is run for all reports of frees that come within gatherFor.
const (
	gatheredAbove = 32
	gatherFor     = 2 * time.Millisecond
)

// cycleSoon runs a cycle at once. If many requests wait, it sets cycleAt instead: Due then returns that time, at which the daemon calls Tick, and
// Tick runs the cycle. Until then new requests are judged against the limits that the last cycle left blocked.
func (a *Arbiter) cycleSoon(now time.Time) {
	if len(a.queue) <= gatheredAbove {
		a.cycle(now)
	} else if a.stale && a.cycleAt.IsZero() {
		a.cycleAt = now.Add(gatherFor)
	}
}

// allLines calls do with each limit of all devices.
func (a *Arbiter) allLines(do func(*limit)) {
	for _, d := range a.devices {
		d.lines(maps.Values(a.shareds), do)
	}
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

// refuseLate refuses the requests that have waited as long as they may, and drops those whose clients have not asked again in time.
func (a *Arbiter) refuseLate(now time.Time) {
	late := func(t *ticket) bool { return !t.ends().IsZero() && !now.Before(t.ends()) }
	if !slices.ContainsFunc(a.queue, late) {
		return
	}
	all := slices.Clone(a.queue)
	slices.SortFunc(all, byArrival)
	for _, t := range all {
		switch {
		case t.done || !late(t):
		case t.absent():
			a.dropAbsent(now, t)
			a.decisions = append(a.decisions, Result{Ticket: t.id, Reason: ReasonCancelled})
		default:
			a.cancel(now, t, ReasonTimeout)
		}
	}
}

// consider judges a waiting request, and serves or refuses it if it can be decided. earlier are the requests that wait before it.
// True: it stays in the queue. It then blocks later requests, or a limit is newly watched for it and the next pass judges it again.
func (a *Arbiter) consider(now time.Time, t *ticket, earlier []*ticket) (waits bool) {
	a.noteSince(t)
	v := a.judge(t)
	if t.absent() {
		if !v.final && !t.left {
			a.bar(now, t) // also if it fits: later requests must not take the room before its client asks again
		}
		return true
	}
	if v.spot != nil {
		if v = a.admit(now, t, v); v.spot != nil {
			if slices.ContainsFunc(earlier, t.narrows) {
				a.changed()
			}
			return false
		}
	}
	switch {
	case a.watch(now, t):
		return true // watch has called changed: the next pass judges it again
	case v.final:
		a.refuseTicket(now, t, v.reason, "")
		return false
	}
	if t.lease != nil && !t.lacks(full.ofPermits) && !t.waitsForBytes() {
		a.refuseTicket(now, t, v.reason, "")
		return false
	}
	a.bar(now, t)
	return true
}

// narrows reports whether t and u are charged to the same job or the same shared budget. If they are, serving t leaves less room for u
// there: u may then have to be refused, or wait at a narrower limit than before.
func (t *ticket) narrows(u *ticket) bool {
	if t.job == u.job {
		return true
	}
	for sh := range t.shares {
		if among(u.shares, sh) {
			return true
		}
	}
	return false
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

// blocksSince returns the time before which a job must have begun to hold memory on a device to pass a waiting request there. A request lets
// those jobs pass that have held memory there for longer than its own job; after age_after of its rule it lets none pass (the zero time).
func blocksSince(now time.Time, t *ticket, s *spot) time.Time {
	if after := t.job.Rule.AgeAfter; after > 0 && now.Sub(t.place.Since) >= after {
		return time.Time{}
	}
	return s.since
}

// noteSince notes since when the job of a request holds memory on its devices.
func (a *Arbiter) noteSince(t *ticket) {
	for i := range t.spots {
		t.spots[i].since = a.heldSince(t.job, t.spots[i].device)
	}
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

// watch begins to watch the limits that refuse a request. For each lease below a limit of bytes it first sets NOTIFY in the credit word, so that
// the client reports each later free. Then it takes the idle credit back, so that each earlier free is counted. For permits it
// takes back the counts of streams that are lent to the clients, and then the slots that no object needs. True: one of the limits was not
// watched before, and the next pass judges the request again.
func (a *Arbiter) watch(now time.Time, t *ticket) (began bool) {
	for i := range t.spots {
		d := t.spots[i].device
		for _, f := range t.waitsOn(&t.spots[i]) {
			l := f.gate()
			if l.watched {
				continue
			}
			l.watched, began = true, true
			a.changed()
			for _, x := range slices.Collect(a.leasesBelow(budgetOf(l.shared), d.Index)) {
				if f.ofBytes() {
					a.collect(x)
				} else {
					a.reflag(x)
				}
			}
			if f.ofPermits() {
				a.sweep(now, d)
			}
		}
	}
	return began
}
