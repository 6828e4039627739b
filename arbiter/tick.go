package arbiter

import (
	"slices"
	"time"
)

// This file has what changes because time passes: deadlines, ages, dead programs' memory and notices. Due tells the daemon when to call Tick.

// Tick does what is due with time: once a second, and at [Arbiter.Due], is right.
func (a *Arbiter) Tick(now time.Time) {
	for p := range a.overs {
		a.recallOver(now, p)
	}
	a.expire(now)
	a.serveDue(now)
}

// serveDue decides the waiting requests whose time has come.
func (a *Arbiter) serveDue(now time.Time) {
	for _, d := range a.devices {
		if d.waiting == 0 {
			continue
		}
		for _, l := range slices.Collect(a.leasesOn(d)) { // a copy, because Freed runs a cycle, and leases may end by that
			if l.notify && a.idle(l) > 0 { // the report of a free can be lost, with the connection to a daemon that was restarted
				a.Freed(now, l.id)
			}
		}
	}
	a.cycleNeeded = true // they have aged
	a.cycle(now)
	a.addNotices(now)
}

// Due returns when Tick has something to do that will not come about by itself; the zero
// time: nothing.
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

// ageDue returns when a waiting request comes before another one, or blocks more than before, because of its age; the zero time: never.
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

// earlier is the earlier one of two times; the zero time is none.
func earlier(x, y time.Time) time.Time {
	if x.IsZero() || !y.IsZero() && y.Before(x) {
		return y
	}
	return x
}
