package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

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

// forgotten counts threads that are remembered no longer.
func (a *Arbiter) forgotten(l *lease, n int) {
	a.threads -= n
	count(a.threadsOf, l.session.process.UID, -n)
}

// made reports whether a thread has an object on the lease's device.
func (a *Arbiter) made(l *lease, thread uint32) bool {
	n, bytes := l.makers.Count(thread)
	return n > 0 || bytes && a.uses(l)
}

// Makers tells which threads of a lease have come to hold other objects than when it was last
// asked, and how many: for RestoredLease.Makers. Nil where slots are not threads'.
func (a *Arbiter) Makers(id LeaseID) []Maker {
	if l := a.leases[id]; l != nil {
		return l.makers.Changed()
	}
	return nil
}

// maxObjects is more than any program makes.
const maxObjects = 1 << 30

// countObjects counts what is gone, and what exists already.
func (a *Arbiter) countObjects(now time.Time, l *lease, r Request) {
	switch {
	case r.Noticed && r.Count > 0:
		a.noticed(now, l, r.Thread, r.Count, r.What)
		return
	case r.What == WantsStreams:
		n := int(l.Release(accounting.Streams, accounting.Bytes(-r.Count)))
		l.makers.Unmake(Maker{Thread: r.Thread, Streams: n})
		a.recost(now, l, func() {})
	case r.What == WantsHolds:
		l.holds -= min(-r.Count, l.holds)
		l.makers.Unmake(Maker{Thread: r.Thread, Holds: -r.Count})
	default:
		a.unmakeContexts(now, l, r.Thread, -r.Count)
	}
	a.left(now, l)
}

// unmakeContexts counts contexts that are gone.
func (a *Arbiter) unmakeContexts(now time.Time, l *lease, thread uint32, n int) {
	n = min(n, l.contexts)
	a.recost(now, l, func() {
		l.beyond.Vacate(now, n, l.contexts)
		l.contexts -= n
	})
	a.changed() // headroom may be kept for the next context, though no sum changes with that
	l.makers.Unmake(Maker{Thread: thread, Contexts: n})
}

// noticed counts contexts that exist already. They take a slot where one is free; where
// none is, what comes next waits for it.
func (a *Arbiter) noticed(now time.Time, l *lease, thread uint32, n int, what What) {
	a.makeContexts(l, thread, n, what)
	if what == WantsContexts {
		l.beyond.Made(now)
	}
	if !l.lost && !a.entered(l, thread) && a.slotIsFree(l, thread) {
		a.enter(now, l, thread)
	}
}

// slotIsFree reports whether a thread can have a slot for what it has made already: one of its
// job's, or one that nobody waits for.
func (a *Arbiter) slotIsFree(l *lease, thread uint32) bool {
	full, own := l.device.full(l.session.job, justSlot, l.session.slots)
	return a.inside(l, thread) || !full && !own && len(l.device.entry[permit.Slot].blockers) == 0
}

func (a *Arbiter) makeContexts(l *lease, thread uint32, n int, what What) {
	thread = a.makes(l, thread)
	if what == WantsHolds {
		l.holds = min(l.holds+n, maxObjects)
		l.makers.Make(Maker{Thread: thread, Holds: n})
		return
	}
	l.contexts = min(l.contexts+n, maxObjects)
	l.makers.Make(Maker{Thread: thread, Contexts: n})
}
