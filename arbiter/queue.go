package arbiter

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file adds requests to the queue, enforces the bounds on its length, and removes requests. decide.go calls it for new requests, and
// decision.go for decided ones. cycle.go decides the requests in the queue.

// Bounds on the number of waiting requests: of all users, of one user, and of one process. The bound of a user does not apply to privileged
// users.
const (
	MaxTickets          = 1024
	MaxTicketsOfUser    = 512
	MaxTicketsOfProcess = 64
)

// noPlace returns the message for a request that finds no place in the queue; "": there is a place. The message names the bound that is
// reached.
func (a *Arbiter) noPlace(t *ticket) string {
	switch p := t.process(); {
	case t.aside:
		return wording.CrowdedAside
	case p.PID != 0 && a.ticketsOfPID[p.PID] >= MaxTicketsOfProcess: // 0: the job of a cgroup
		return fmt.Sprintf(wording.CrowdedByProcess, MaxTicketsOfProcess)
	case !p.MayPass() && a.ticketsOf[p.UID] >= MaxTicketsOfUser:
		return fmt.Sprintf(wording.CrowdedByUser, p.UID, MaxTicketsOfUser)
	case len(a.tickets) >= MaxTickets:
		return fmt.Sprintf(wording.Crowded, MaxTickets)
	}
	return ""
}

// countTicket counts a ticket that begins to wait (by is 1) or stops waiting (by is -1), by process and by user.
func (a *Arbiter) countTicket(t *ticket, by int) {
	p := t.process()
	count(a.ticketsOfPID, p.PID, by)
	count(a.ticketsOf, p.UID, by)
}

// countWaiting counts a ticket that begins to wait (by is 1) or stops waiting (by is -1), by thread of its session.
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

// enqueue adds a request to the queue.
func (a *Arbiter) enqueue(now time.Time, t *ticket) {
	a.lastTicket++
	t.id, t.waitingSince = a.lastTicket, now
	if wait := t.job.timeout(); wait >= 0 && t.kind != wantsReturn {
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
	if t.kind == wantsReturn {
		a.suspensionChanged(t.job)
	}
	if len(t.job.tickets) == 1 { // from the first ticket of a job on, its processes report what they free
		for _, s := range t.job.sessions {
			for _, l := range s.leases {
				a.watchLease(l)
			}
		}
	}
	a.changed()
}

// dequeue removes a ticket from the queue.
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
		for in := range t.reservesIn {
			l := in.limitOn(d)
			l.watched = l.watched && d.waiting > 0
		}
	}
	if l := t.lease; l != nil {
		l.waits--
	}
	if t.kind == wantsReturn {
		a.suspensionChanged(t.job)
	}
}

// refusesFirst reports whether a request of a thread is refused at once although it may wait, and counts that refusal. The first waitAfter
// requests of a burst are, so that an allocator that keeps freed memory gives it back. A burst begins with a refusal, and ends with the next
// grant of memory to the thread on this device.
func (l *lease) refusesFirst(t *ticket) bool {
	if l.bursts[t.thread] >= t.waitAfter {
		return false
	}
	if l.bursts == nil || len(l.bursts) >= MaxThreads { // forgotten threads begin a new burst
		l.bursts = make(map[uint32]int)
	}
	l.bursts[t.thread]++
	t.first = true
	return true
}
