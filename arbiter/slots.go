package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// This file takes slots for the objects that clients make, and returns a slot when its holder has no object left. If slots belong to
// threads, it tracks which thread made which object. permits.go has the permits themselves. serve.go, objects.go and end.go call this file.

// MaxThreads is how many threads with objects are tracked for a lease, and MaxThreadsInAll for all leases together. They apply if slots
// belong to threads.
const (
	MaxThreads      = 1024
	MaxThreadsInAll = 1 << 16
)

// threadsCrowded reports whether a thread's objects cannot be tracked: its lease has MaxThreads tracked threads, or its user has reached
// its share of MaxThreadsInAll.
func (a *Arbiter) threadsCrowded(l *lease, thread uint32) bool {
	if l.scope != rules.ScopeThread || l.makers.Has(thread) {
		return false
	}
	share := !l.session.process.MayPass() && (a.threadsOf[l.session.process.UID] >= MaxThreadsInAll/2 || a.threads >= MaxThreadsInAll/8*7)
	return l.makers.Len() >= MaxThreads || share || a.threads >= MaxThreadsInAll
}

// trackThread tracks a thread that makes something, if slots belong to threads. It returns the number under which the thread counts: 0
// (unknown) if the thread cannot be tracked.
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

// uncountThreads subtracts threads that are not tracked any more.
func (a *Arbiter) uncountThreads(l *lease, n int) {
	a.threads -= n
	count(a.threadsOf, l.session.process.UID, -n)
}

// Makers returns the threads of a lease whose objects have changed since the last call, with their objects, for RestoredLease.Makers. It
// returns nil if slots do not belong to threads.
func (a *Arbiter) Makers(id LeaseID) []Maker {
	if l := a.leases[id]; l != nil {
		return l.makers.Changed()
	}
	return nil
}

// takeSlot takes a slot for the object that a thread is about to make, if it has none.
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

// keepSpare grants a job with NoWait (none of its requests may wait) a slot of a device again, if the job has no other slot there. The slot
// is spare: no process of the job uses it yet. keepSpare grants the slot also while the device is lost.
func (a *Arbiter) keepSpare(now time.Time, d *device, j *job) {
	if j.run && !j.released && !j.ended && j.assigned(d) && j.keepsSpare(d) && len(j.holders(d)) == 0 {
		a.grantJobPermits(now, j, d)
	}
}

// dropSlot takes a slot back from its holder. The last slot of a job with NoWait becomes its spare slot.
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

// usesMemory reports whether a lease has memory in use. If not, it recalls the lease's idle credit, because that must not become memory
// without a slot.
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

// hasObjects reports whether a lease has an object or memory in use.
func (a *Arbiter) hasObjects(l *lease) bool {
	return l.contexts > 0 || l.Streams() > 0 || l.holds > 0 || a.usesMemory(l)
}

// threadHasObjects reports whether a thread has an object or memory on the lease's device.
func (a *Arbiter) threadHasObjects(l *lease, thread uint32) bool {
	n, bytes := l.makers.Count(thread)
	return n > 0 || bytes && a.usesMemory(l)
}

// inUse reports whether a holder has an object left, or keeps its slot without one.
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

// forgetThreads stops tracking the threads of a lease that hold nothing any more, and takes their slots back.
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

// dropUnusedSlots takes back the slots of a lease's holders that have no object left.
func (a *Arbiter) dropUnusedSlots(now time.Time, l *lease) {
	if l.scope == rules.ScopeThread {
		a.forgetThreads(now, l)
	}
	a.checkDelegation(l)
	h := l.slot
	if h == nil { // l took no slot; other processes of the job may have taken one, or the job kept one before ReleaseJob
		h = l.device.holder(owner{Job: l.session.job})
	}
	switch {
	case h == nil:
		a.setNotify(l)
	case h.kept || l.contexts > 0 || l.Streams() > 0:
	case a.inUse(h):
		a.setNotify(l) // l has no context and no stream left: its next free may return the slot
	default:
		a.dropSlot(now, h)
	}
}

// dropUnusedOn takes back the slots on a device whose holders have freed their last object without a message.
func (a *Arbiter) dropUnusedOn(now time.Time, d *device) {
	for _, h := range d.permits[permit.Slot] {
		if d.holder(h.owner) == h && !h.kept && !a.inUse(h) { // an earlier dropSlot of this loop may have dropped h
			a.dropSlot(now, h)
		}
	}
}

// slotsChanged takes back unused slots of a device after slots.max has changed.
func (a *Arbiter) slotsChanged(now time.Time, d *device) {
	a.changed()
	if d.overfull() {
		a.dropUnusedOn(now, d)
	}
}
