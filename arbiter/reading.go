package arbiter

import (
	"maps"
	"slices"
	"time"
)

// This file applies a reading of a device to the ledger. observe.go has the parts of that; package reading computes overhead and excess.

// Reading is a reading of a device. All its methods but Figures and Leased need the daemon's lock.
//
// Usage of a client's process above its granted bytes is overhead of its lease. Usage of a process without a lease is unmanaged. Both lower
// the capacity of the device, except overhead that is charged to the lease's own budget (cost.go). A lease of an ended process that the
// reading does not list is closed. Readings of a lost device are ignored.
//
// An allocation or a free during the reading can be in one of the two figures and missing in the other. So the larger of the used bytes
// before and after the reading is subtracted, and the smaller overhead of the last two readings counts. A transient counts only if it lasts
// over two readings; real overhead counts from its second reading on. An early reading counts alone, but only if no allocation can have
// been under way (package reading).
type Reading struct {
	a      *Arbiter
	device *device
	leased bool // the device has a lease

	usage   Usage
	figures map[int]ProcessUsage
}

// Reading begins a reading of a device, and records what each lease uses before that. It returns nil for an unknown device.
func (a *Arbiter) Reading(device int) *Reading {
	d := a.device(device)
	if d == nil {
		return nil
	}
	r := &Reading{a: a, device: d}
	for l := range a.leasesOn(d) {
		r.leased = true
		l.extra.BeginReading(l.Granted()-a.idle(l), a.makesContexts(l))
	}
	return r
}

// Leased reports whether the device had a lease when the reading began. Without a lease, utilisation is not needed, because nothing shows
// it. Leased needs no lock.
func (r *Reading) Leased() bool { return r != nil && r.leased }

// Unread reports whether contexts that were made on a device after since are not yet confirmed by readings. The daemon then reads the
// device as soon as it may.
func (a *Arbiter) Unread(device int, since time.Time) bool {
	if d := a.device(device); d != nil && !d.unnamed {
		for l := range a.leasesOn(d) {
			if l.session.alive() && !l.lost && l.extra.MadeAt().After(since) {
				return true
			}
		}
	}
	return false
}

// Recovering reports whether readings have still to show what contexts of restored leases take on a device. Before that, a grant could use
// the room of these contexts, so that the daemon serves no client. It returns false if contexts take nothing by the configuration, or if
// readings do not name processes.
func (a *Arbiter) Recovering(device int) bool {
	d := a.device(device)
	if d == nil || d.lost || d.unnamed || d.contextRoom() == 0 {
		return false
	}
	for l := range a.leasesOn(d) {
		if l.session.alive() && !l.lost && l.contexts > 0 && !l.extra.Confirmed() {
			return true
		}
	}
	return false
}

// UnreadOf reports whether bytes are assumed on a device for contexts of a session, because no reading has shown them yet.
func (a *Arbiter) UnreadOf(id SessionID, device int) bool {
	s, d := a.sessions[id], a.device(device)
	if s == nil || d == nil || d.unnamed || d.hung {
		return false
	}
	l := s.leaseOn(d)
	return l != nil && s.alive() && !l.lost && l.extra.Assumed() > 0
}

// Figures stores what the device reported. It needs no lock.
func (r *Reading) Figures(u Usage) {
	r.usage, r.figures = u, make(map[int]ProcessUsage, len(u.Processes))
	for _, p := range u.Processes {
		if known, twice := r.figures[p.PID]; twice { // the device lists graphics and compute separately
			p.Bytes = max(p.Bytes, known.Bytes)
		}
		r.figures[p.PID] = p
	}
}

// Apply applies the reading to the ledger.
func (r *Reading) Apply(now time.Time) {
	a, d := r.a, r.device
	if d.lost {
		return
	}
	for l := range a.leasesOn(d) {
		l.noteCalls(now)
		l.noteUtilisation(now, r.usage.Utilisation)
	}
	if d.toldUse = (time.Time{}); r.usage.Utilisation != nil {
		if d.toldUse = r.usage.Began; d.toldUse.IsZero() {
			d.toldUse = now
		}
	}
	defer func() {
		d.recent.Note(now, d.peak.used.Plus(a.ledger.Device(d.Index).Overhead).Plus(d.unmanaged), d.Total)
	}()
	if d.unnamed = r.usage.Unnamed; d.unnamed {
		return
	}
	defer a.cycle(now)
	d.early = r.usage.Early
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
	if d.contextCost() != cost { // requests for contexts now need more or fewer bytes
		a.changed()
	}
	var strangers []ProcessUsage
	shown := d.shown
	d.shown = 0
	for _, p := range r.figures {
		d.shown = d.shown.Plus(p.Bytes)
		if p.Bytes > 0 && !d.isClient(p) {
			strangers = append(strangers, p)
		}
	}
	if d.shown < shown { // requests that wait for the device to show room may have it
		a.changed()
	}
	a.readUnmanaged(now, d, strangers)
	a.updateCapacity(now, d)
	for _, l := range a.goneLeases(d) {
		if a.leases[l.id] == l {
			a.closeDrained(now, l)
		}
	}
}
