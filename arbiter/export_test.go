package arbiter

import (
	"time"
)

// Observe takes a reading of a device into the books. It does not note what leases used just before.
func (a *Arbiter) Observe(now time.Time, u Usage) {
	if d := a.device(u.Device); d != nil {
		r := &Reading{a: a, device: d}
		r.Figures(u)
		r.Book(now)
	}
}

// Note notes what each lease on a device uses just before the reading begins that Observe takes next: with that a free that
// finishes during the reading does not look like overhead.
func (a *Arbiter) Note(device int) { a.Reading(device) }

// Finish does what is due by now.
func (a *Arbiter) Finish(now time.Time) { a.loosen(now) }

// WaitsForBytes tells whether a ticket was refused for bytes on a device when it was last judged.
func (a *Arbiter) WaitsForBytes(id TicketID, device int) bool {
	for i := range a.tickets[id].spots {
		if s := &a.tickets[id].spots[i]; s.device.Index == device {
			return s.waitsForBytes()
		}
	}
	return false
}

// JudgeAll judges all waiting requests again.
func (a *Arbiter) JudgeAll(now time.Time) {
	a.changed()
	a.cycle(now)
}
