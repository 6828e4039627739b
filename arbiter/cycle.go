package arbiter

import (
	"slices"
	"time"
)

// This file has the admission cycle, which decides the waiting requests. Each exported call that may let a waiting request be served ends
// with a cycle. evaluate.go says whether a request fits, limit.go has the limits at which requests wait, serve.go and refuse.go carry out
// decisions, and deadlock.go searches for deadlocks.

// cycle is the admission cycle. It decides each waiting request that can be decided, until no such request is left:
//
//  1. If no request waits, stop.
//  2. Refuse the requests whose deadline has passed. Sort the others by priority plus age, then by arrival.
//  3. Clear the set of blocked limits.
//  4. Evaluate each request in order. Refuse it if it can never fit. Grant it if it fits and no limit that it adds to is blocked.
//     Refuse it if it may not wait for what is missing. Otherwise the request waits, and blocks the narrowest limit that refuses
//     it on each of its candidate devices.
//  5. If step 4 released something or may have changed the evaluation of an earlier request, go to 2. This includes the first
//     time that a request waits at a limit: the clients below the limit are then told to report what they free.
//  6. Keep the set of blocked limits: new requests are evaluated against it without a cycle.
//  7. Stop watching limits at which no request waits any more.
//  8. Search for a deadlock. If one was broken, go to 2.
//
// At the end, and also if no request waits, cycle opens the credit words below limits that are no longer exceeded.
func (a *Arbiter) cycle(now time.Time) {
	if a.cycling {
		return
	}
	a.cycling, a.cycleAt = true, time.Time{}
	defer func() { a.cycling = false }()
	a.noticesDue = a.noticesDue || a.cycleNeeded
	// Each pass decides a request or begins to watch a limit, so that the loop ends. The bound protects against a mistake in this
	// reasoning: a daemon that hangs is worse than a request that only a later cycle decides.
	for bound := 64 + 16*len(a.queue); a.cycleNeeded && bound > 0; bound-- {
		a.cycleNeeded = false
		if len(a.queue) == 0 { // 1
			break
		}
		a.refuseLate(now) // 2
		a.sort(now)
		a.clearBlockers() // 3
		for i := 0; i < len(a.queue) && !a.cycleNeeded; {
			if a.decideWaiting(now, a.queue[i], a.queue[:i]) { // 4
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

// decideWaiting evaluates a waiting request, and serves or refuses it if it can be decided. earlier are the requests before it in the queue.
// If decideWaiting returns true the request stays in the queue: it blocks later requests, or a limit is newly watched for it and the next
// pass evaluates it again.
func (a *Arbiter) decideWaiting(now time.Time, t *ticket, earlier []*ticket) (waits bool) {
	a.noteHeldSince(t)
	v := a.evaluate(t)
	if t.absent() {
		if !v.final && !t.resumed {
			a.blockLater(now, t) // even if it fits: later requests must not take the room before its client asks again
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
		return true // watch has called changed: the next pass evaluates it again
	case (v.final || t.lease != nil && !t.lacks(refusingLimit.ofPermits) && !t.waitsForBytes()) && !a.needsReading(t):
		a.refuseTicket(now, t, v.reason, "")
		return false
	}
	a.blockLater(now, t)
	return true
}

// watch begins to watch the limits that refuse a request, and returns true if one of them was not watched before. The next pass then
// evaluates the request again. For each lease below a limit of bytes, watch first sets NOTIFY in the credit word, so that the client
// reports each later free. Then it recalls the idle credit, so that each earlier free is counted. For permits it first revokes the stream
// counts that are delegated to clients, and then drops the slots that no object needs.
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
			for _, x := range slices.Collect(a.leasesBelow(l.budget(), d.Index)) {
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

// If more than gatheredAbove requests wait, one cycle handles all frees that are reported within gatherFor.
const (
	gatheredAbove = 32
	gatherFor     = 2 * time.Millisecond
)

// cycleSoon runs a cycle at once, or sets cycleAt if many requests wait. Due then returns cycleAt, the daemon calls Tick at that time, and
// Tick runs the cycle. Until then new requests are evaluated against the limits that the last cycle left blocked.
func (a *Arbiter) cycleSoon(now time.Time) {
	if len(a.queue) <= gatheredAbove {
		a.cycle(now)
	} else if a.cycleNeeded && a.cycleAt.IsZero() {
		a.cycleAt = now.Add(gatherFor)
	}
}
