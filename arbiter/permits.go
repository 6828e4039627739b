package arbiter

import (
	"cmp"
	"time"

	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// This file says who has permits of a device (slots, claims, the sole use of it), whether there are more, and which a job keeps from its beginning
// to its end. It gives permits and takes them back without looking whether anything needs them; slots.go does that.

// holder returns who has a slot there, or nil.
func (d *device) holder(o owner) *holder { return d.permits[permit.Slot][o] }

// kindsOf returns the kinds of permits that an owner has on a device.
func (d *device) kindsOf(o owner) (kinds permit.Kinds) {
	for k, set := range d.permits {
		kinds[k] = set[o] != nil
	}
	return kinds
}

// owner is whose slot a thread's object on a lease's device counts against.
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

// slots yields the slots that a lease has, or its threads.
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

// slotCount returns the number of slots that a lease has, or its threads.
func (l *lease) slotCount() (n int) {
	for range l.slots {
		n++
	}
	return n
}

// width orders the scopes of slots: the more slots a program needs, the larger.
func width(s rules.Scope) int {
	switch s {
	case rules.ScopeThread:
		return 2
	case rules.ScopeProcess:
		return 1
	}
	return 0
}

// scopeOf says whose the slots are that a session takes on a device: as the device's
// rule says, or its own, or its own wish where that is narrower.
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

// spareOf returns the slot that a job keeps for the first who comes; nil: it has none.
func (d *device) spareOf(j *job) *holder {
	if h := d.holder(owner{Job: j}); h != nil && h.spare {
		return h
	}
	return nil
}

// overfull reports whether there are more slots taken than there are: who left without a word must not come back so.
func (d *device) overfull() bool {
	most := d.slotsMax()
	return most > 0 && len(d.permits[permit.Slot]) > most
}

// full tells whether a device has no permits for one more of a job: by its rule, or by a
// program's own wish (own) to be one of few.
func (d *device) full(j *job, asks permit.Kinds, wish int) (full, own bool) {
	if d.permits.Full(j, asks, d.caps()) {
		return true, false
	}
	return false, wish > 0 && len(d.permits[permit.Slot]) >= wish
}

// justSlot is what a process needs to make something.
var justSlot = permit.Kinds{permit.Slot: true}

// holders returns the permits that a job, its processes and their threads have on a device.
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

// width is the width of the slots that rules give a job on a device.
func (j *job) width(d *device) int { return width(cmp.Or(j.Rule.SlotScope, d.rule.SlotScope)) }

// keeps reports whether a job takes a slot of a device at its start and keeps it to its
// end: by claim, to be alone there, or, where slots are jobs', where there is a cap and on a
// device that it names or has memory reserved on. One that never waits keeps all of its own,
// whosever slots are: nobody is to have them when its program comes to use them. A memory.min that is changed
// while the job runs takes no slot and gives none back, so that a restart of the daemon does not either.
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
	return j.width(d) == 0 && (d.slotsMax() > 0 || len(r.Devices) > 0 || atStart.Memory(d.bounds()).Min > 0)
}

// asks are the permits that a job takes of each device that it keeps.
func (j *job) asks() permit.Kinds {
	r := &j.request
	return permit.Kinds{permit.Slot: true, permit.Claim: r.Claim || r.Any, permit.Sole: r.Exclusive}
}

// keepsSpare reports whether what a job keeps of a device is for the first of its processes or
// threads alone, as slots there are not jobs'.
func (j *job) keepsSpare(d *device) bool {
	r := &j.request
	return r.NoWait && !r.Exclusive && !r.Claim && !r.Any && j.width(d) > 0
}

// occupies reports whether a job has a slot of a device where that keeps others out.
func (j *job) occupies(d *device) bool {
	return len(j.holders(d)) > 0 && (d.slotsMax() > 0 || d.permits[permit.Sole][owner{Job: j}] != nil || len(d.permits[permit.Claim]) > 0)
}

// hasSlot reports whether there is a slot already that what a thread makes on a lease's
// device counts against.
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

// needsNoSlot reports whether what a thread makes on a lease's device needs no slot that its job
// does not have.
func (a *Arbiter) needsNoSlot(l *lease, thread uint32) bool {
	return l.device.spareOf(l.session.job) != nil || a.hasSlot(l, thread)
}

// keepsSlot reports whether a lease has a slot that stays with it for as long as it holds something.
func (l *lease) keepsSlot() bool {
	h := l.slot
	return h != nil && (h.kept || h.Process != nil || l.scope == "" || l.scope == rules.ScopeJob)
}

// grantPermits gives somebody permits, a slot among them.
func (a *Arbiter) grantPermits(now time.Time, d *device, o owner, kinds permit.Kinds) *holder {
	h := d.holder(o)
	if h == nil {
		h = &holder{owner: o, device: d, since: now}
		o.Job.slots++
		a.changed() // others have one less, and its own requests need none
	}
	d.permits.Enter(o, kinds, h)
	return h
}

// revokePermits takes all permits of a holder back.
func (a *Arbiter) revokePermits(h *holder) {
	h.device.permits.Leave(h.owner)
	h.Job.slots--
	a.changed()
}

// grantJobPermits makes a job a holder of a device until it ends.
func (a *Arbiter) grantJobPermits(now time.Time, j *job, d *device) {
	h := a.grantPermits(now, d, owner{Job: j}, j.asks())
	h.kept, h.spare = true, j.keepsSpare(d)
}
