package arbiter

import (
	"slices"
	"time"
)

// This file has everything that changes because time passes: deadlines, ages, memory of ended processes, and notices. Due tells the daemon
// when to call Tick.

// Tick does what is due at a time. The daemon calls it once a second, and at [Arbiter.Due].
func (a *Arbiter) Tick(now time.Time) {
	for p := range a.exceeded {
		a.recallOver(now, p)
	}
	a.expire(now)
	a.settleAll(now)
	a.serveDue(now)
	a.makeRoomForWaiting(now)
	a.returnOnRoom(now)
	a.warn(now)
}

// serveDue runs a cycle for the requests whose age or deadline may have changed their evaluation.
func (a *Arbiter) serveDue(now time.Time) {
	for _, d := range a.devices {
		if d.waiting == 0 {
			continue
		}
		for _, l := range slices.Collect(a.leasesOn(d)) { // a copy, because Freed runs a cycle, and the cycle may end leases
			if l.notify && a.idle(l) > 0 { // the report of a free can be lost with the connection to an earlier daemon
				a.Freed(now, l.id)
			}
		}
	}
	a.cycleNeeded = true // requests have become older
	a.cycle(now)
	a.addNotices(now)
}

// Due returns when Tick must be called next; the zero time: at no set time.
func (a *Arbiter) Due() (due time.Time) {
	if len(a.queue) == 0 {
		return time.Time{}
	}
	due = earlier(earlier(a.searchDue(), a.noticesAt()), a.cycleAt)
	for _, t := range a.queue {
		due = earlier(due, t.expiry())
	}
	return earlier(due, a.ageDue())
}

// ageDue returns when a waiting request next moves forward or blocks more requests because of its age; the zero time: never.
func (a *Arbiter) ageDue() (due time.Time) {
	mixed := slices.ContainsFunc(a.queue, func(t *ticket) bool { return t.priority != a.queue[0].priority })
	for _, t := range a.queue {
		if mixed {
			due = earlier(due, t.place.Since.Add(rankAfter*time.Duration(a.rank(a.sorted, t)-t.priority+1)))
		}
		if ages := t.place.Since.Add(t.job.Rule.AgeAfter); ages.After(a.sorted) {
			due = earlier(due, ages)
		}
	}
	return due
}

// earlier returns the earlier of two times. The zero time counts as no time.
func earlier(x, y time.Time) time.Time {
	if x.IsZero() || !y.IsZero() && y.Before(x) {
		return y
	}
	return x
}
