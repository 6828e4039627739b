package arbiter

import (
	"cmp"
	"slices"
	"time"
)

// What time alone brings about for those who wait: [Arbiter.Tick] calls pass, and Due tells the daemon when.

// pass does what time alone brings about for those who wait.
func (a *Arbiter) pass(now time.Time) {
	if len(a.tickets) == 0 {
		a.telling = nil
		return
	}
	if a.telling != nil && now.Sub(a.noticedAt) < noticeEvery { // all else was done when this pass began
		a.tell(now)
		return
	}
	a.age(now)
	for _, d := range a.devices {
		a.rouse(d)
		d.changes++ // they have aged
		if d.queue.Len() > 0 {
			a.gather(now, d)
		}
	}
	if a.serveQueues(now); a.Unfinished() {
		return
	}
	a.loosen(now)
	a.tell(now)
}

// gather takes back what lies idle below limits that somebody waits at: a free's report
// can be lost, with the connection to a daemon that was restarted.
func (a *Arbiter) gather(now time.Time, d *device) {
	for _, l := range slices.Collect(a.leasesOn(d)) { // a copy, because Freed serves the queues, and leases may end by that
		if l.notify && a.idle(l) > 0 {
			a.Freed(now, l.id)
		}
	}
}

// Due returns when Tick has something to do that will not come about by itself; the zero
// time: nothing.
func (a *Arbiter) Due() (due time.Time) {
	if len(a.tickets) == 0 {
		return a.unfinished
	}
	for _, t := range [...]time.Time{a.unfinished, a.nextDue(), a.looseAt, a.searchDue(), a.noticesAt()} {
		due = earlier(due, t)
	}
	return due
}

// age refuses those who have waited as long as they may, and notes which others have come before
// those that they were behind.
func (a *Arbiter) age(now time.Time) {
	var due []*ticket
	for t, some := a.dues.First(); some && !now.Before(t.due); t, some = a.dues.First() {
		a.dues.Remove(t)
		due = append(due, t)
	}
	slices.SortFunc(due, byArrival)
	for _, t := range due {
		switch {
		case t.done:
		case !t.deadline.IsZero() && !now.Before(t.deadline):
			a.cancel(now, t, ReasonTimeout)
		default:
			t.age = a.rank(now, t) - t.priority
			a.aged = true
			a.noteDue(t)
		}
	}
}

// byArrival orders tickets by who came first.
func byArrival(x, y *ticket) int {
	return cmp.Or(cmp.Compare(x.place.Arrival, y.place.Arrival), cmp.Compare(x.id, y.id))
}

// nextDue is when something becomes due for a ticket with time alone; zero: nothing does.
func (a *Arbiter) nextDue() time.Time {
	if t, some := a.dues.First(); some {
		return t.due
	}
	return time.Time{}
}

// ticketDue is the same for one ticket: its deadline, or when it comes before others.
func (a *Arbiter) ticketDue(t *ticket) time.Time {
	due, older := t.deadline, time.Time{}
	switch {
	case a.mixed:
		older = t.place.Since.Add(a.policy.AgeAfter * time.Duration(t.age+1))
	case t.fresh && t.age < 1:
		older = t.place.Since.Add(a.policy.AgeAfter)
	}
	return earlier(due, older)
}

// earlier is the earlier one of two times; the zero time is none.
func earlier(x, y time.Time) time.Time {
	if x.IsZero() || !y.IsZero() && y.Before(x) {
		return y
	}
	return x
}

// noteDue notes when something is due for a ticket that has begun to wait, or has changed.
func (a *Arbiter) noteDue(t *ticket) {
	if t.due = a.ticketDue(t); t.due.IsZero() {
		a.dues.Remove(t)
		return
	}
	a.dues.Put(t)
}

// mix is for when those who wait are no longer of one priority: from then on all age.
func (a *Arbiter) mix() {
	a.aged = true
	for _, t := range a.tickets {
		a.noteDue(t)
	}
}
