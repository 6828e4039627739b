package arbiter

import (
	"slices"
	"time"
)

// This file has the admission cycle. Every exported call that may let a waiting request go on ends with a cycle. limit.go has the limits at which
// requests wait, evaluate.go whether one fits, deadlock.go the search for deadlocks.

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
	a.noticesDue = a.noticesDue || a.cycleNeeded
	// Each pass decides a request or begins to watch a limit, so that the loop ends. The bound is for the case that this is wrong: a daemon
	// that hangs would be worse than a request that only a later cycle decides.
	for bound := 64 + 16*len(a.queue); a.cycleNeeded && bound > 0; bound-- {
		a.cycleNeeded = false
		if len(a.queue) == 0 { // 1
			break
		}
		a.refuseLate(now) // 2
		a.sort(now)
		a.clearBlockers() // 3
		for i := 0; i < len(a.queue) && !a.cycleNeeded; {
			if a.decide(now, a.queue[i], a.queue[:i]) { // 4
				i++
			}
		}
		if a.cycleNeeded { // 5
			continue
		}
		a.unwatch()               // 7
		if a.breakDeadlock(now) { // 8
			a.changed()
		}
	}
	a.reopenAll(now)
}

// decide judges a waiting request, and serves or refuses it if it can be decided. earlier are the requests that wait before it.
// True: it stays in the queue. It then blocks later requests, or a limit is newly watched for it and the next pass judges it again.
func (a *Arbiter) decide(now time.Time, t *ticket, earlier []*ticket) (waits bool) {
	a.noteHeldSince(t)
	v := a.evaluate(t)
	if t.absent() {
		if !v.final && !t.resumed {
			a.blockLater(now, t) // also if it fits: later requests must not take the room before its client asks again
		}
		return true
	}
	if v.fits != nil {
		if v = a.admit(now, t, v); v.fits != nil {
			if slices.ContainsFunc(earlier, t.sharesBudget) {
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
	if t.lease != nil && !t.lacks(refusingLimit.ofPermits) && !t.waitsForBytes() {
		a.refuseTicket(now, t, v.reason, "")
		return false
	}
	a.blockLater(now, t)
	return true
}

// watch begins to watch the limits that refuse a request. For each lease below a limit of bytes it first sets NOTIFY in the credit word, so that
// the client reports each later free. Then it takes the idle credit back, so that each earlier free is counted. For permits it
// takes back the counts of streams that are lent to the clients, and then the slots that no object needs. True: one of the limits was not
// watched before, and the next pass judges the request again.
func (a *Arbiter) watch(now time.Time, t *ticket) (began bool) {
	for i := range t.candidates {
		d := t.candidates[i].device
		for _, f := range t.waitsOn(&t.candidates[i]) {
			l := f.watchState()
			if l.watched {
				continue
			}
			l.watched, began = true, true
			a.changed()
			for _, x := range slices.Collect(a.leasesBelow(budgetOf(l.shared), d.Index)) {
				if f.ofBytes() {
					a.watchLease(x)
				} else {
					a.setNotify(x)
				}
			}
			if f.ofPermits() {
				a.dropUnusedOn(now, d)
			}
		}
	}
	return began
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
	} else if a.cycleNeeded && a.cycleAt.IsZero() {
		a.cycleAt = now.Add(gatherFor)
	}
}
