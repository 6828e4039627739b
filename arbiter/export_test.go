package arbiter

import (
	"math"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// Snapshot is a Picture of the whole state that is made at once.
func (a *Arbiter) Snapshot(now time.Time) accounting.Snapshot {
	p := a.Picture(now)
	p.Sort()
	for p.Add(math.MaxInt32) {
	}
	return p.Done()
}

// Observe takes a reading of a device into the books at once.
func (a *Arbiter) Observe(now time.Time, u Usage) {
	if d := a.device(u.Device); d != nil {
		r := &Reading{a: a, device: d}
		r.Figures(u)
		for r.Book(now, math.MaxInt) {
		}
	}
}

// Note notes what each lease on a device uses just before the reading begins that Observe takes next: with that a free that
// finishes during the reading does not look like overhead.
func (a *Arbiter) Note(device int) { a.Reading(device).Note(math.MaxInt) }

// Looked is how often a ticket was looked at so far.
func (a *Arbiter) Looked() uint64 { return a.looked }

// SearchInParts has every search for circles made beside the lock, on a copy of one ticket at a time.
func (a *Arbiter) SearchInParts() { a.atOnce = 0 }

// LookAtOnce has each call look at so many tickets at most.
func (a *Arbiter) LookAtOnce(n int) { a.steps.AtOnce, a.steps.Left = n, n }

// Finish does what calls have left, and what is due by now.
func (a *Arbiter) Finish(now time.Time) {
	for again := true; again; again = a.Unfinished() {
		for a.Unfinished() {
			a.serveQueues(now)
		}
		a.loosen(now)
	}
}

// WaitsForBytes tells whether a ticket was refused for bytes on a device when it was last judged.
func (a *Arbiter) WaitsForBytes(id TicketID, device int) bool {
	for i := range a.tickets[id].spots {
		if s := &a.tickets[id].spots[i]; s.device.Index == device {
			return s.at != 0 && s.reason() != ReasonSlots
		}
	}
	return false
}

// JudgeAll has all who wait judged anew.
func (a *Arbiter) JudgeAll(now time.Time) {
	for _, d := range a.devices {
		a.renew(d)
	}
	a.serveQueues(now)
	a.Finish(now)
}
