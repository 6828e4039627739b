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

// trackThread remembers a thread that makes something, in leases whose slots are threads', and returns under which it counts:
// one that there is no room for counts as one that is not known.
func (a *Arbiter) trackThread(l *lease, thread uint32) uint32 {
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

// uncountThreads counts threads that are remembered no longer.
func (a *Arbiter) uncountThreads(l *lease, n int) {
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

// takeSlot takes a slot for what a thread is about to make, if it has none.
func (a *Arbiter) takeSlot(now time.Time, l *lease, thread uint32) {
	if a.hasSlot(l, thread) {
		return
	}
	if h := l.device.spareOf(l.session.job); h != nil {
		a.revokePermits(h)
	}
	if l.scope != rules.ScopeThread {
		l.slot = a.grantPermits(now, l.device, l.owner(thread), justSlot)
		return
	}
	a.grantPermits(now, l.device, l.owner(a.trackThread(l, thread)), justSlot).lease = l
}

// keepSpare gives a job that never waits (NoWait) a slot of a device again if it has none left there, also while the device is lost.
func (a *Arbiter) keepSpare(now time.Time, d *device, j *job) {
	if j.run && !j.released && !j.ended && j.assigned(d) && j.keepsSpare(d) && len(j.holders(d)) == 0 {
		a.grantJobPermits(now, j, d)
	}
}

// dropSlot takes a slot back. The last one of a job that never waits becomes its spare one.
func (a *Arbiter) dropSlot(now time.Time, h *holder) {
	d := h.device
	a.revokePermits(h)
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

// usesMemory reports whether a lease has memory in use. Where it has none, its idle credit is
// taken back: it must not become memory without a slot.
func (a *Arbiter) usesMemory(l *lease) bool {
	granted := l.Granted()
	if granted == 0 {
		return false
	}
	if a.idle(l) < granted {
		return true
	}
	a.recallIdle(l, granted)
	return l.Granted() > 0
}

// hasObjects reports whether a lease has an object.
func (a *Arbiter) hasObjects(l *lease) bool {
	return l.contexts > 0 || l.Streams() > 0 || l.holds > 0 || a.usesMemory(l)
}

// threadHasObjects reports whether a thread has an object on the lease's device.
func (a *Arbiter) threadHasObjects(l *lease, thread uint32) bool {
	n, bytes := l.makers.Count(thread)
	return n > 0 || bytes && a.usesMemory(l)
}

// inUse reports whether a holder has an object left.
func (a *Arbiter) inUse(h *holder) bool {
	switch {
	case h.kept:
		return true
	case h.lease != nil:
		l := h.lease
		return l.session.alive() && !l.lost && a.threadHasObjects(l, h.Thread)
	}
	for l := range h.Job.leasesOn(h.device) {
		s := l.session
		if s.alive() && (h.Process == nil || h.Process == s) && !l.lost && l.slot == h && a.hasObjects(l) {
			return true
		}
	}
	return false
}

// forgetThreads forgets the threads of a lease that hold nothing any more, and takes their
// slots back.
func (a *Arbiter) forgetThreads(now time.Time, l *lease) {
	if unused := l.makers.HasMemoryOnly() && !a.usesMemory(l); unused {
		l.makers.ForgetMemory()
	}
	gone := l.makers.Forget()
	for _, thread := range gone {
		if h := l.device.holder(l.owner(thread)); h != nil {
			a.dropSlot(now, h)
		}
	}
	a.uncountThreads(l, len(gone))
}

// dropUnusedSlots looks whether a lease's holders have an object left, after some went.
func (a *Arbiter) dropUnusedSlots(now time.Time, l *lease) {
	if l.scope == rules.ScopeThread {
		a.forgetThreads(now, l)
	}
	a.checkDelegation(l)
	h := l.slot
	if h == nil { // what others of its job have, or it kept before it was released
		h = l.device.holder(owner{Job: l.session.job})
	}
	switch {
	case h == nil:
		a.setNotify(l)
	case h.kept || l.contexts > 0 || l.Streams() > 0:
	case a.inUse(h):
		a.setNotify(l) // its memory alone keeps the slot
	default:
		a.dropSlot(now, h)
	}
}

// dropUnusedOn gives back the slots of those who freed their last object without a word.
func (a *Arbiter) dropUnusedOn(now time.Time, d *device) {
	for _, h := range d.permits[permit.Slot] {
		if d.holder(h.owner) == h && !h.kept && !a.inUse(h) { // dropping one may have dropped another one
			a.dropSlot(now, h)
		}
	}
}

// slotsChanged looks who still has a slot of a device after slots.max has changed.
func (a *Arbiter) slotsChanged(now time.Time, d *device) {
	a.changed()
	if d.overfull() {
		a.dropUnusedOn(now, d)
	}
}
