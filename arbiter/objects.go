package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// This file counts the contexts, streams and holds that clients make and give back, and restores the slots that these need. ask.go,
// recount.go and restore.go call it; slots.go has the slots.

// maxObjects is more objects than any program makes.
const maxObjects = 1 << 30

// countObjects counts objects that a client gave back, or that exist already (Noticed).
func (a *Arbiter) countObjects(now time.Time, l *lease, r Request) {
	switch {
	case r.Noticed && r.Count > 0:
		a.countExisting(now, l, r.Thread, r.Count, r.What)
		return
	case r.What == WantsStreams:
		n := int(l.Release(accounting.Streams, accounting.Bytes(-r.Count)))
		l.makers.Unmake(Maker{Thread: r.Thread, Streams: n})
		a.updateCost(now, l, func() {})
	case r.What == WantsHolds:
		l.holds -= min(-r.Count, l.holds)
		l.makers.Unmake(Maker{Thread: r.Thread, Holds: -r.Count})
	default:
		a.countEndedContexts(now, l, r.Thread, -r.Count)
	}
	a.dropUnusedSlots(now, l)
}

// countEndedContexts counts contexts that a client gave back.
func (a *Arbiter) countEndedContexts(now time.Time, l *lease, thread uint32, n int) {
	n = min(n, l.contexts)
	a.updateCost(now, l, func() {
		l.extra.FreeContexts(now, n, l.contexts)
		l.contexts -= n
	})
	a.changed() // headroom may be reserved for the next context, although no sum changes
	l.makers.Unmake(Maker{Thread: thread, Contexts: n})
}

// countExisting counts contexts that exist already. They take a slot if one is free; if not, the next request of the client waits for it.
func (a *Arbiter) countExisting(now time.Time, l *lease, thread uint32, n int, what RequestKind) {
	a.countContexts(l, thread, n, what)
	if what == WantsContexts {
		l.extra.ContextsMade(now)
		a.updateCost(now, l, func() { l.extra.Expect(l.device.contextRoom().Times(uint64(n))) })
	}
	if !l.lost && !a.hasSlot(l, thread) && a.slotIsFree(l, thread) {
		a.takeSlot(now, l, thread)
	}
}

// slotIsFree reports whether a thread can have a slot for an existing object: a slot of its job, or one for which no request waits.
func (a *Arbiter) slotIsFree(l *lease, thread uint32) bool {
	full, own := l.device.full(l.session.job, justSlot, l.session.slots)
	return a.needsNoSlot(l, thread) || !full && !own && len(l.device.permitLimits[permit.Slot].blockers) == 0
}

// countContexts counts contexts, or holds on shared contexts, that a thread has made.
func (a *Arbiter) countContexts(l *lease, thread uint32, n int, what RequestKind) {
	thread = a.trackThread(l, thread)
	if what == WantsHolds {
		l.holds = min(l.holds+n, maxObjects)
		l.makers.Make(Maker{Thread: thread, Holds: n})
		return
	}
	l.contexts = min(l.contexts+n, maxObjects)
	a.contextChanges++
	l.makers.Make(Maker{Thread: thread, Contexts: n})
}

// restoreObjects gives a lease the slots that its objects need, even if none are free. The holders count from the opening of the lease,
// because no later time is known.
func (a *Arbiter) restoreObjects(now time.Time, l *lease, makers []Maker) {
	if l.contexts == 0 && l.Streams() == 0 && l.Granted() == 0 && len(makers) == 0 {
		return
	}
	defer l.backdate()
	if l.scope != rules.ScopeThread {
		a.takeSlot(now, l, 0)
		return
	}
	if makers == nil {
		makers = []Maker{{Contexts: l.contexts, Streams: l.Streams()}}
	}
	for _, m := range makers {
		m.Thread = a.trackThread(l, m.Thread)
		l.makers.Restore(m)
		l.holds += max(0, m.Holds)
		a.takeSlot(now, l, m.Thread)
	}
	if l.contexts+l.Streams()+l.holds == 0 {
		l.makers.MakeBytes(a.trackThread(l, 0))
		a.takeSlot(now, l, 0)
	}
}

// backdate sets the times of the holders of a restored lease: no later than the lease was opened.
func (l *lease) backdate() {
	backdate := func(h *holder) {
		if l.opened.Before(h.since) {
			h.since = l.opened
		}
	}
	for h := range l.slots {
		backdate(h)
	}
	if h := l.device.holder(owner{Job: l.session.job}); h != nil {
		backdate(h)
	}
}
