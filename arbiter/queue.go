package arbiter

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file enters requests among those that wait, with the bounds on these, and takes them out again. decide.go has what happens to a new request,
// cycle.go decides those that wait.

// The bounds on requests that wait: in all, of one user, and of one process. The bound of a user does not hold for a
// privileged one.
const (
	MaxTickets          = 1024
	MaxTicketsOfUser    = 512
	MaxTicketsOfProcess = 64
)

// noPlace returns the message of a request for which there is no place in the queue, because a bound is reached, which the message names;
// "": there is one.
func (a *Arbiter) noPlace(t *ticket) string {
	switch p := t.process(); {
	case t.aside:
		return wording.CrowdedAside
	case a.ticketsOfPID[p.PID] >= MaxTicketsOfProcess:
		return fmt.Sprintf(wording.CrowdedByProcess, MaxTicketsOfProcess)
	case !p.MayPass() && a.ticketsOf[p.UID] >= MaxTicketsOfUser:
		return fmt.Sprintf(wording.CrowdedByUser, p.UID, MaxTicketsOfUser)
	case len(a.tickets) >= MaxTickets:
		return fmt.Sprintf(wording.Crowded, MaxTickets)
	}
	return ""
}

// countTicket counts a ticket that begins to wait (by is 1) or stops waiting (by is -1).
func (a *Arbiter) countTicket(t *ticket, by int) {
	p := t.process()
	count(a.ticketsOfPID, p.PID, by)
	count(a.ticketsOf, p.UID, by)
}

// countWaiting counts a ticket of a thread that begins to wait (by 1), or does no longer (by -1).
func countWaiting(t *ticket, by int) {
	s := t.session
	if s == nil {
		return
	}
	if s.waits == nil {
		s.waits = make(map[uint32]int)
	}
	count(s.waits, t.thread, by)
}

// enqueue enters a request among those that wait.
func (a *Arbiter) enqueue(now time.Time, t *ticket) {
	a.lastTicket++
	t.id, t.waitingSince = a.lastTicket, now
	if wait := t.job.timeout(); wait >= 0 {
		t.deadline = t.place.Since.Add(wait)
	}
	a.tickets[t.id] = t
	a.countTicket(t, 1)
	countWaiting(t, 1)
	t.job.tickets = append(t.job.tickets, t)
	at, _ := slices.BinarySearchFunc(a.queue, t, a.compare)
	a.queue = slices.Insert(a.queue, at, t)
	for i := range t.candidates {
		t.candidates[i].device.waiting++
	}
	if l := t.lease; l != nil {
		l.waits++
	}
	if len(t.job.tickets) == 1 { // from the job's first ticket on its processes report what they free
		for _, s := range t.job.sessions {
			for _, l := range s.leases {
				a.watchLease(l)
			}
		}
	}
	a.changed()
}

// dequeue takes a ticket out of the queue.
func (a *Arbiter) dequeue(now time.Time, t *ticket) {
	delete(a.tickets, t.id)
	a.countTicket(t, -1)
	countWaiting(t, -1)
	remove := func(from []*ticket) []*ticket {
		at := slices.Index(from, t)
		return slices.Delete(from, at, at+1)
	}
	t.job.tickets, a.queue = remove(t.job.tickets), remove(a.queue)
	for i := range t.candidates {
		d := t.candidates[i].device
		d.waiting--
		d.limitsFor(t.shares, func(l *limit) { l.watched = l.watched && d.waiting > 0 })
	}
	if l := t.lease; l != nil {
		l.waits--
	}
}

// burst reports whether a request of a thread is refused at once, because its burst has had fewer than most refusals, and counts that refusal.
func (l *lease) burst(now time.Time, thread uint32, most int) bool {
	if most <= 0 {
		return false
	}
	b := l.bursts[thread]
	if now.Sub(b.last) > burstLasts {
		b.count = 0
	}
	if b.count >= most {
		return false
	}
	if l.bursts == nil || len(l.bursts) >= MaxThreads { // threads that are forgotten begin a new burst
		l.bursts = make(map[uint32]burst)
	}
	l.bursts[thread] = burst{b.count + 1, now}
	return true
}

// burstLasts is how long after a refusal another refusal still belongs to the same burst.
const burstLasts = 10 * time.Second
