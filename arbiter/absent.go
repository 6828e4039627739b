package arbiter

import "time"

// Waiting requests with an absent client. After a restart of the daemon, and after a client resumed its session, the client has to ask again for
// what it waited for (Place.Absent, Leave). Until it does (Return), its ticket is not granted. After a restart it blocks later requests as before;
// after a resume it does not, because a client that resumes again and again could keep others out for ever. A client that
// does not ask again within AbsentFor loses its place. In the copy of the books that the search for deadlocks makes an absent request does not count as waiting: its job may go on.

// Restore calls restore, which enters in the arbiter, by calls of other methods, what an earlier daemon left. No cycle runs in these calls; one runs
// at the end.
func (a *Arbiter) Restore(now time.Time, restore func()) {
	a.cycling = true
	restore()
	a.cycling = false
	a.changed()
	a.cycle(now)
}

// MarkAbsent marks waiting requests whose client has resumed its session and has to ask again. From then on they block no other request. Tickets
// that do not wait are ignored. None of these requests is granted, because the cycle runs after all of them are marked.
func (a *Arbiter) MarkAbsent(now time.Time, ids []TicketID) {
	for _, id := range ids {
		if t := a.tickets[id]; t != nil {
			t.absentUntil, t.resumed = now.Add(AbsentFor), true
			a.changed()
		}
	}
	a.cycle(now)
}

// TakePlace removes the ticket of an absent client, because the client asks again, and returns the place for the new request. The caller must make
// that request before any other call. The zero Place: no such ticket waits.
func (a *Arbiter) TakePlace(now time.Time, id TicketID) (place Place) {
	if t := a.tickets[id]; t != nil && t.absent() {
		place = t.place
		a.dropAbsent(now, t)
	}
	return place
}
