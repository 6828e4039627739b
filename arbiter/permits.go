package arbiter

import (
	"cmp"
	"time"

	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// This file grants and revokes the permits of a device (slots, claims, the sole use of the device), and says which slots a job keeps from
// its start to its end. It does not check whether an object needs the permit; slots.go does that.

// holder returns the holder of an owner's slot, or nil.
func (d *device) holder(o owner) *holder { return d.permits[permit.Slot][o] }

// kindsOf returns the kinds of permits that an owner has on a device.
func (d *device) kindsOf(o owner) (kinds permit.Kinds) {
	for k, set := range d.permits {
		kinds[k] = set[o] != nil
	}
	return kinds
}

// owner returns the owner of the slot that a thread's object on the lease's device needs: job, process or thread, by the scope of slots.
func (l *lease) owner(thread uint32) owner {
	s := l.session
	switch l.scope {
	case rules.ScopeThread:
		return owner{Job: s.job, Process: s, Thread: thread}
	case rules.ScopeProcess:
		return owner{Job: s.job, Process: s}
	}
	return owner{Job: s.job}
}

// slots yields the holders of a lease's slots, or of its threads' slots.
func (l *lease) slots(yield func(*holder) bool) {
	if l.slot != nil && !yield(l.slot) {
		return
	}
	for thread := range l.makers.All() {
		if h := l.device.holder(l.owner(thread)); h != nil && !yield(h) {
			return
		}
	}
}

// slotCount returns the number of slots that a lease and its threads have.
func (l *lease) slotCount() (n int) {
	for range l.slots {
		n++
	}
	return n
}

// width orders the scopes of slots: the more slots a program needs, the larger the result.
func width(s rules.Scope) int {
	switch s {
	case rules.ScopeThread:
		return 2
	case rules.ScopeProcess:
		return 1
	}
	return 0
}

// scopeOf returns the owner of the slots that a session takes on a device, as the rule says, else as the device says. The program's own
// setting applies if it is narrower.
func (a *Arbiter) scopeOf(s *session, d *device) rules.Scope {
	scope := d.rule.SlotScope
	if s.job.Rule.SlotScope != "" {
		scope = s.job.Rule.SlotScope
	}
	if width(s.slotScope) > width(scope) {
		scope = s.slotScope
	}
	return scope
}

// spareOf returns the spare slot of a job; nil: it has none.
func (d *device) spareOf(j *job) *holder {
	if h := d.holder(owner{Job: j}); h != nil && h.spare {
		return h
	}
	return nil
}

// overfull reports whether more slots are taken than slots.max allows. Clients that freed everything
// without a report must then lose their slots.
func (d *device) overfull() bool {
	most := d.slotsMax()
	return most > 0 && len(d.permits[permit.Slot]) > most
}

// full reports whether one more permit for a job is refused by the device (full), or by the program's own slot limit (own).
func (d *device) full(j *job, asks permit.Kinds, ownLimit int) (full, own bool) {
	if d.permits.Full(j, asks, d.caps()) {
		return true, false
	}
	return false, ownLimit > 0 && len(d.permits[permit.Slot]) >= ownLimit
}

// justSlot is the set of permits that a process needs to make an object.
var justSlot = permit.Kinds{permit.Slot: true}

// holders returns the holders of slots on a device that belong to a job, its processes or their threads.
func (j *job) holders(d *device) (all []*holder) {
	if j.slots == 0 {
		return nil
	}
	add := func(o owner) {
		if h := d.holder(o); h != nil {
			all = append(all, h)
		}
	}
	add(owner{Job: j})
	for _, s := range j.sessions {
		add(owner{Job: j, Process: s})
		for _, l := range s.leases {
			for thread := range l.makers.All() {
				if l.device == d && thread != 0 {
					add(owner{Job: j, Process: s, Thread: thread})
				}
			}
		}
	}
	return all
}

// width returns the width of the slot scope that the rules set for a job on a device.
func (j *job) width(d *device) int { return width(cmp.Or(j.Rule.SlotScope, d.rule.SlotScope)) }

// keeps reports whether a job takes a slot of a device at its start and keeps it to its end. It does for a claim and for the sole use of
// the device. If slots belong to jobs, it also does on a device with slots.max, on a device that it names, and on a device with a
// reservation. A job with NoWait keeps a slot on all its devices, because no other job may have the slot when its program starts to use the
// device. A memory.min that changes while the job runs has no effect here, so that a restart of the daemon has none either.
func (j *job) keeps(d *device) bool {
	if !j.run || j.released || j.ended || d.lost || !j.assigned(d) {
		return false
	}
	r := &j.request
	if r.Exclusive || r.Claim || r.Any || r.NoWait {
		return true
	}
	atStart := j.Job
	atStart.Live = nil
	return j.width(d) == 0 && (d.slotsMax() > 0 || len(r.Devices) > 0 || j.reservesOn(d) && atStart.Memory(d.bounds()).Min > 0)
}

// asks returns the kinds of permits (slot, claim, sole use) that a job takes on each device on which it keeps a slot.
func (j *job) asks() permit.Kinds {
	r := &j.request
	return permit.Kinds{permit.Slot: true, permit.Claim: r.Claim || r.Any, permit.Sole: r.Exclusive}
}

// keepsSpare reports whether the slot that a job keeps on a device is a spare one, for the first of its processes or threads.
func (j *job) keepsSpare(d *device) bool {
	r := &j.request
	return r.NoWait && !r.Exclusive && !r.Claim && !r.Any && j.width(d) > 0
}

// occupies reports whether a job has a slot of a device that keeps other jobs out.
func (j *job) occupies(d *device) bool {
	return len(j.holders(d)) > 0 && (d.slotsMax() > 0 || d.permits[permit.Sole][owner{Job: j}] != nil || len(d.permits[permit.Claim]) > 0)
}

// hasSlot reports whether the slot exists that a thread's object on a lease's device needs.
func (a *Arbiter) hasSlot(l *lease, thread uint32) bool {
	if l.slot != nil {
		return true
	}
	d := l.device
	if h := d.holder(owner{Job: l.session.job}); h != nil && !h.spare {
		l.slot = h
		return true
	}
	h := d.holder(l.owner(thread))
	if h != nil && l.scope != rules.ScopeThread {
		l.slot = h
	}
	return h != nil
}

// needsNoSlot reports whether a thread can make an object on a lease's device without another slot for its job.
func (a *Arbiter) needsNoSlot(l *lease, thread uint32) bool {
	return l.device.spareOf(l.session.job) != nil || a.hasSlot(l, thread)
}

// keepsSlot reports whether a lease has a slot that stays with it while it holds anything.
func (l *lease) keepsSlot() bool {
	h := l.slot
	return h != nil && (h.kept || h.Process != nil || l.scope == "" || l.scope == rules.ScopeJob)
}

// grantPermits grants permits to an owner. A slot must be among them.
func (a *Arbiter) grantPermits(now time.Time, d *device, o owner, kinds permit.Kinds) *holder {
	h := d.holder(o)
	if h == nil {
		h = &holder{owner: o, device: d, since: now}
		o.Job.slots++
		a.changed() // others have one slot less, and the owner's own requests need none
	}
	d.permits.Grant(o, kinds, h)
	return h
}

// revokePermits takes all permits of a holder back.
func (a *Arbiter) revokePermits(h *holder) {
	h.device.permits.Revoke(h.owner)
	h.Job.slots--
	a.changed()
}

// grantJobPermits makes a job a holder of a device until the job ends.
func (a *Arbiter) grantJobPermits(now time.Time, j *job, d *device) {
	h := a.grantPermits(now, d, owner{Job: j}, j.asks())
	h.kept, h.spare = true, j.keepsSpare(d)
}
