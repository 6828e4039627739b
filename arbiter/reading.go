package arbiter

import (
	"maps"
	"slices"
	"time"
)

// This file takes a reading of a device into the books. observe.go has the parts of that.

// Reading is a reading of a device. All methods but Figures need the daemon's lock.
//
// What a client's process uses beyond its bytes is its lease's overhead; what processes use that have no lease
// there is unmanaged; both lower the capacity, but for the part of the overhead that is charged to the lease's own
// budget (cost.go). A dead process that the reading does not list any more is reclaimed. Readings of a lost device
// are ignored.
//
// An allocation or a free that is under way during the reading is in one of the two figures and not in the other.
// So the larger of the used bytes before and after the reading is subtracted, and of the last two readings'
// overheads the smaller one counts: a transient has to last from one reading to the next to be believed. The price
// is that real overhead counts from the second reading on.
type Reading struct {
	a      *Arbiter
	device *device

	usage   Usage
	figures map[int]ProcessUsage
}

// Reading begins a reading of a device, and notes what each lease there uses before the device is read; nil for one that is not known.
func (a *Arbiter) Reading(device int) *Reading {
	d := a.device(device)
	if d == nil {
		return nil
	}
	for l := range a.leasesOn(d) {
		l.extra.BeginReading(l.Granted()-a.idle(l), a.makesContexts(l))
	}
	return &Reading{a: a, device: d}
}

// Figures takes what the device said. It needs no lock.
func (r *Reading) Figures(u Usage) {
	r.usage, r.figures = u, make(map[int]ProcessUsage, len(u.Processes))
	for _, p := range u.Processes {
		if known, twice := r.figures[p.PID]; twice { // graphics and compute are listed apart
			p.Bytes = max(p.Bytes, known.Bytes)
		}
		r.figures[p.PID] = p
	}
}

// Book takes the reading into the books.
func (r *Reading) Book(now time.Time) {
	a, d := r.a, r.device
	if d.lost {
		return
	}
	if d.unnamed = r.usage.Unnamed; d.unnamed {
		return
	}
	defer a.cycle(now)
	if d.began, d.figures = r.usage.Began, r.figures; d.began.IsZero() {
		d.began = now
	}
	cost := d.contextCost()
	for _, pid := range slices.Collect(maps.Keys(d.byPID)) {
		a.readOverhead(now, d, pid)
		for _, l := range d.byPID[pid] {
			l.SetOverhead(l.uncharged())
		}
	}
	if d.contextCost() != cost { // requests for contexts need more, or less
		a.changed()
	}
	var strangers []ProcessUsage
	for _, p := range r.figures {
		if p.Bytes > 0 && !d.isClient(p) {
			strangers = append(strangers, p)
		}
	}
	a.readUnmanaged(now, d, strangers)
	a.recap(now, d)
	for _, l := range a.goneLeases(d) {
		if a.leases[l.id] == l {
			a.closeDrained(now, l)
		}
	}
}
