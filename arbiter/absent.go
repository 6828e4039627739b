package arbiter

import "time"

// This file handles waiting requests whose client is absent. After a restart of the daemon, and after a client resumed its session, the
// client has to ask again for what it waited for (Place.Absent, MarkAbsent). Until it does (TakePlace), its ticket is not granted. After a
// restart the ticket blocks later requests as before. After a resume it does not, because a client that resumes again and again could keep
// others out for ever. A client that does not ask again within AbsentFor loses its place. The search for deadlocks omits absent requests,
// because their jobs may go on.

// Restore calls restore, which calls other methods to restore the state of an earlier daemon. No cycle runs in these calls; one runs at the
// end.
func (a *Arbiter) Restore(now time.Time, restore func()) {
	a.cycling = true
	restore()
	a.cycling = false
	a.changed()
	a.cycle(now)
}

// MarkAbsent marks waiting requests whose client has resumed its session and has to ask again. From then on they block no other request.
// Tickets that do not wait are ignored. The cycle runs after all are marked, so that none of them is granted.
func (a *Arbiter) MarkAbsent(now time.Time, ids []TicketID) {
	for _, id := range ids {
		if t := a.tickets[id]; t != nil {
			t.absentUntil, t.resumed = now.Add(AbsentFor), true
			a.changed()
		}
	}
	a.cycle(now)
}

// TakePlace removes the ticket of an absent client that asks again, and returns the place for the new request. The caller must make that
// request before any other call. The zero Place: no such ticket waits.
func (a *Arbiter) TakePlace(now time.Time, id TicketID) (place Place) {
	if t := a.tickets[id]; t != nil && t.absent() {
		place = t.place
		a.dropAbsent(now, t)
	}
	return place
}
