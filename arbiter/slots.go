package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// This file takes slots for what clients make, and gives them back when nothing of their holder is left. Where slots belong to threads it remembers
// which thread made what. permits.go says who has permits.

// MaxThreads is how many threads of a lease are remembered that hold something, and
// MaxThreadsInAll of all leases together. They are for slots that are threads'.
const (
	MaxThreads      = 1024
	MaxThreadsInAll = 1 << 16
)

// threadsCrowded reports whether a thread's objects cannot be counted: of a lease there is room for MaxThreads, and of a user's for its share
// of all.
func (a *Arbiter) threadsCrowded(l *lease, thread uint32) bool {
	if l.scope != rules.ScopeThread || l.makers.Has(thread) {
		return false
	}
	share := !l.session.process.MayPass() && (a.threadsOf[l.session.process.UID] >= MaxThreadsInAll/2 || a.threads >= MaxThreadsInAll/8*7)
	return l.makers.Len() >= MaxThreads || share || a.threads >= MaxThreadsInAll
}

// makes remembers a thread that makes something, in leases whose slots are threads', and returns under which it counts:
// one that there is no room for counts as one that is not known.
func (a *Arbiter) makes(l *lease, thread uint32) uint32 {
	if l.scope != rules.ScopeThread {
		return thread
	}
	if a.threadsCrowded(l, thread) {
		thread = 0
	}
	if !l.makers.Has(thread) {
		l.makers.Add(thread)
		a.threads++
		a.threadsOf[l.session.process.UID]++
	}
	return thread
}

// forgotten counts threads that are remembered no longer.
func (a *Arbiter) forgotten(l *lease, n int) {
	a.threads -= n
	count(a.threadsOf, l.session.process.UID, -n)
}

// Makers tells which threads of a lease have come to hold other objects than when it was last
// asked, and how many: for RestoredLease.Makers. Nil where slots are not threads'.
func (a *Arbiter) Makers(id LeaseID) []Maker {
	if l := a.leases[id]; l != nil {
		return l.makers.Changed()
	}
	return nil
}

// enter takes a slot for what a thread is about to make, if it has none.
func (a *Arbiter) enter(now time.Time, l *lease, thread uint32) {
	if a.entered(l, thread) {
		return
	}
	if h := l.device.spareOf(l.session.job); h != nil {
		a.forget(h)
	}
	if l.scope != rules.ScopeThread {
		l.slot = a.grantPermits(now, l.device, l.owner(thread), justSlot)
		return
	}
	a.grantPermits(now, l.device, l.owner(a.makes(l, thread)), justSlot).lease = l
}

// keepSpare gives a job that never waits (NoWait) a slot of a device again if it has none left there, also while the device is lost.
func (a *Arbiter) keepSpare(now time.Time, d *device, j *job) {
	if j.run && !j.released && !j.ended && j.given(d) && j.keepsSpare(d) && len(j.holders(d)) == 0 {
		a.grantJobPermits(now, j, d)
	}
}

// drop takes a slot back. The last one of a job that never waits becomes its spare one.
func (a *Arbiter) drop(now time.Time, h *holder) {
	d := h.device
	a.forget(h)
	defer a.keepSpare(now, d, h.Job)
	a.stats.LastRunMs = uint64(max(0, now.Sub(h.since)/time.Millisecond))
	if h.lease != nil {
		return
	}
	for l := range h.Job.leasesOn(d) {
		if l.slot == h {
			l.slot = nil
			l.touched = now
		}
	}
}

// uses reports whether a lease has memory in use. Where it has none, its idle credit is
// taken back: it must not become memory without a slot.
func (a *Arbiter) uses(l *lease) bool {
	granted := l.Granted()
	if granted == 0 {
		return false
	}
	if a.idle(l) < granted {
		return true
	}
	a.take(l, granted)
	return l.Granted() > 0
}

// live reports whether a lease has an object.
func (a *Arbiter) live(l *lease) bool {
	return l.contexts > 0 || l.Streams() > 0 || l.holds > 0 || a.uses(l)
}

// made reports whether a thread has an object on the lease's device.
func (a *Arbiter) made(l *lease, thread uint32) bool {
	n, bytes := l.makers.Count(thread)
	return n > 0 || bytes && a.uses(l)
}

// busy reports whether a holder has an object left.
func (a *Arbiter) busy(h *holder) bool {
	switch {
	case h.kept:
		return true
	case h.lease != nil:
		l := h.lease
		return l.session.alive() && !l.lost && a.made(l, h.Thread)
	}
	for l := range h.Job.leasesOn(h.device) {
		s := l.session
		if s.alive() && (h.Process == nil || h.Process == s) && !l.lost && l.slot == h && a.live(l) {
			return true
		}
	}
	return false
}

// forgetThreads forgets the threads of a lease that hold nothing any more, and takes their
// slots back.
func (a *Arbiter) forgetThreads(now time.Time, l *lease) {
	if unused := l.makers.ByBytes() && !a.uses(l); unused {
		l.makers.NoBytes()
	}
	gone := l.makers.Forget()
	for _, thread := range gone {
		if h := l.device.holder(l.owner(thread)); h != nil {
			a.drop(now, h)
		}
	}
	a.forgotten(l, len(gone))
}

// left looks whether a lease's holders have an object left, after some went.
func (a *Arbiter) left(now time.Time, l *lease) {
	if l.scope == rules.ScopeThread {
		a.forgetThreads(now, l)
	}
	a.unlend(l)
	h := l.slot
	if h == nil { // what others of its job have, or it kept before it was released
		h = l.device.holder(owner{Job: l.session.job})
	}
	switch {
	case h == nil:
		a.reflag(l)
	case h.kept || l.contexts > 0 || l.Streams() > 0:
	case a.busy(h):
		a.reflag(l) // its memory alone keeps the slot
	default:
		a.drop(now, h)
	}
}

// sweep gives back the slots of those who freed their last object without a word.
func (a *Arbiter) sweep(now time.Time, d *device) {
	for _, h := range d.permits[permit.Slot] {
		if d.holder(h.owner) == h && !h.kept && !a.busy(h) { // dropping one may have dropped another one
			a.drop(now, h)
		}
	}
}

// slotsChanged looks who still has a slot of a device after slots.max has changed.
func (a *Arbiter) slotsChanged(now time.Time, d *device) {
	a.changed()
	if d.overfull() {
		a.sweep(now, d)
	}
}
