package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// owner is whose a permit is.
type owner = permit.Key[*job, *session]

// holder has a slot of a device; a job's may have a claim or the sole use of it as well. It takes the slot with
// its first object there (context, stream, memory) and gives it back with the last; one that is kept was taken
// when its job began, and stays until that ends. A spare one stays until the first of the job's
// processes, or threads, takes it.
type holder struct {
	owner
	device *device
	since  time.Time
	kept   bool
	spare  bool
	lease  *lease // whose thread it is, where the slot is a thread's; else nil
}

// holder returns who has a slot there, or nil.
func (d *device) holder(o owner) *holder { return d.permits[permit.Slot][o] }

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

// slots are those that a lease has, or its threads.
func (l *lease) slots() (all []*holder) {
	if l.slot != nil {
		all = append(all, l.slot)
	}
	for thread := range l.makers.All() {
		if h := l.device.holder(l.owner(thread)); h != nil {
			all = append(all, h)
		}
	}
	return all
}

// inside reports whether what a thread makes on a lease's device needs no slot that its job
// does not have.
func (a *Arbiter) inside(l *lease, thread uint32) bool {
	return l.device.spareOf(l.session.job) != nil || a.entered(l, thread)
}

// spareOf returns the slot that a job keeps for the first who comes; nil: it has none.
func (d *device) spareOf(j *job) *holder {
	if h := d.holder(owner{Job: j}); h != nil && h.spare {
		return h
	}
	return nil
}

// entered reports whether there is a slot already that what a thread makes on a lease's
// device counts against.
func (a *Arbiter) entered(l *lease, thread uint32) bool {
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

// justSlot is what a process needs to make something.
var justSlot = permit.Kinds{permit.Slot: true}

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

// forget takes all permits of a holder back.
func (a *Arbiter) forget(h *holder) {
	h.device.permits.Leave(h.owner)
	h.Job.slots--
	a.changed()
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

// keepSpare gives a job that never waits (NoWait) a slot of a device again if it has none left there, also while the device is lost.
func (a *Arbiter) keepSpare(now time.Time, d *device, j *job) {
	if j.run && !j.released && !j.ended && j.given(d) && j.keepsSpare(d) && len(j.holders(d)) == 0 {
		a.grantJobPermits(now, j, d)
	}
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

// live reports whether a lease has an object.
func (a *Arbiter) live(l *lease) bool {
	return l.contexts > 0 || l.Streams() > 0 || l.holds > 0 || a.uses(l)
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
		a.dropIdle(now, h)
	}
}

// dropIdle takes a slot back with which nothing is done.
func (a *Arbiter) dropIdle(now time.Time, h *holder) {
	if h.device.holder(h.owner) == h && !h.kept && !a.busy(h) {
		a.drop(now, h)
	}
}

// slotsChanged looks who still has a slot of a device after slots.max has changed.
func (a *Arbiter) slotsChanged(now time.Time, d *device) {
	a.changed()
	if d.overfull() {
		a.sweep(now, d)
	}
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

// caps are how many permits of each kind a device has.
func (d *device) caps() permit.Caps {
	if most := d.slotsMax(); most > 0 {
		return permit.Caps{permit.Slot: most}
	}
	return permit.Caps{permit.Claim: 1}
}

// slotsMax is slots.max in force; 0 for no limit.
func (d *device) slotsMax() int {
	if most, _, live := d.live.Slots(d.Index); live {
		return most
	}
	return max(0, d.rule.SlotsMax)
}

// slotsBy is what slots.max comes from.
func (d *device) slotsBy() string {
	_, by, live := d.live.Slots(d.Index)
	if !live && d.slotsMax() > 0 {
		return "the configuration"
	}
	return by
}
