package arbiter

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// MaxThreads is how many threads of a lease are remembered that hold something, and
// MaxThreadsInAll of all leases together. They are for slots that are threads'.
const (
	MaxThreads      = 1024
	MaxThreadsInAll = 1 << 18
)

// maker is what a thread has made on a lease's device and not given back. Memory is
// not counted by thread, as nobody knows who frees what: it keeps the slot of a thread
// that has nothing else until the lease uses none.
type maker struct {
	thread                   uint32
	contexts, streams, holds int
	bytes                    bool
	noted                    bool // it is in its lease's list of changes
}

// count is how many objects a thread has.
func (m *maker) count() int { return m.contexts + m.streams + m.holds }

// threads are the threads of a lease that hold something, where slots are threads'. A
// client numbers them as it likes: so they are bounded, and no request goes through all
// of them that does not have to.
type threads struct {
	all     []*maker // by thread
	byBytes int      // of them, those that memory alone may keep
	emptied bool     // some may hold nothing any more
	changed []*maker // whose objects have changed since Makers was last asked
}

// search returns a thread's place in the list, and whether it is there.
func (ts *threads) search(thread uint32) (int, bool) {
	return slices.BinarySearchFunc(ts.all, thread, func(m *maker, t uint32) int { return cmp.Compare(m.thread, t) })
}

// of returns what is remembered of a thread, or nil.
func (ts *threads) of(thread uint32) *maker {
	if i, ok := ts.search(thread); ok {
		return ts.all[i]
	}
	return nil
}

// note has the objects of a thread told to the state file.
func (ts *threads) note(m *maker) {
	if !m.noted {
		m.noted = true
		ts.changed = append(ts.changed, m)
	}
}

// remembers tells whether a thread's objects can be counted: of a lease there is room for
// MaxThreads, and of a user's for its share of all.
func (a *Arbiter) remembers(l *lease, thread uint32) (yes bool, why string) {
	if l.scope != rules.ScopeThread || l.makers.of(thread) != nil {
		return true, ""
	}
	uid, name := l.session.process.UID, l.session.name()
	switch {
	case len(l.makers.all) >= MaxThreads:
		return false, fmt.Sprintf(wording.ThreadsOfProcess, MaxThreads, name, l.device, thread)
	case uid != 0 && (a.threadsOf[uid] >= MaxThreadsInAll/2 || a.threads >= MaxThreadsInAll/8*7), a.threads >= MaxThreadsInAll:
		return false, fmt.Sprintf(wording.ThreadsInAll, a.threads, a.threadsOf[uid], uid, MaxThreadsInAll, thread, name)
	}
	return true, ""
}

// makes counts objects of a thread, in leases whose slots are threads'. A thread that there
// is no room for counts as one that is not known.
func (a *Arbiter) makes(l *lease, thread uint32) *maker {
	if l.scope != rules.ScopeThread {
		return &maker{noted: true} // nobody looks at it
	}
	if yes, _ := a.remembers(l, thread); !yes {
		thread = 0
	}
	i, ok := l.makers.search(thread)
	if !ok {
		l.makers.all = slices.Insert(l.makers.all, i, &maker{thread: thread})
		a.threads++
		a.threadsOf[l.session.process.UID]++
	}
	return l.makers.all[i]
}

// forgetThreads forgets the threads of a lease that hold nothing any more, and takes their
// slots back.
func (a *Arbiter) forgetThreads(now time.Time, l *lease) {
	ts := &l.makers
	if unused := ts.byBytes > 0 && !a.uses(l); unused {
		for _, m := range ts.all {
			m.bytes = false
		}
		ts.byBytes, ts.emptied = 0, true
	}
	if !ts.emptied {
		return
	}
	ts.emptied = false
	gone := func(m *maker) bool { return m.count() == 0 && !m.bytes }
	for _, m := range ts.all {
		if !gone(m) {
			continue
		}
		if h := l.device.holder(l.owner(m.thread)); h != nil {
			a.drop(now, h)
		}
	}
	before := len(ts.all)
	ts.all = slices.DeleteFunc(ts.all, gone)
	a.forgotten(l, before-len(ts.all))
}

// forgotten counts threads that are remembered no longer.
func (a *Arbiter) forgotten(l *lease, n int) {
	uid := l.session.process.UID
	a.threads -= n
	if a.threadsOf[uid] -= n; a.threadsOf[uid] <= 0 {
		delete(a.threadsOf, uid)
	}
}

// made reports whether a thread has an object on the lease's device.
func (a *Arbiter) made(l *lease, thread uint32) bool {
	m := l.makers.of(thread)
	return m != nil && (m.count() > 0 || m.bytes && a.uses(l))
}

// unmake takes n objects off what a thread made, which one says; what it has too few of
// is taken off others.
func (l *lease) unmake(thread uint32, n int, which func(*maker) *int) {
	ts := &l.makers
	take := func(m *maker) {
		c := min(n, *which(m))
		if c == 0 {
			return
		}
		*which(m) -= c
		n -= c
		ts.note(m)
		ts.emptied = ts.emptied || m.count() == 0
	}
	if m := ts.of(thread); m != nil {
		take(m)
	}
	for i := 0; i < len(ts.all) && n > 0; i++ {
		take(ts.all[i])
	}
}

func contextsOf(m *maker) *int { return &m.contexts }
func streamsOf(m *maker) *int  { return &m.streams }
func holdsOf(m *maker) *int    { return &m.holds }

// Makers tells which threads of a lease have come to hold other objects than when it was last
// asked, and how many: for RestoredLease.Makers. Nil where slots are not threads'.
func (a *Arbiter) Makers(id LeaseID) []Maker {
	l := a.leases[id]
	if l == nil || len(l.makers.changed) == 0 {
		return nil
	}
	all := make([]Maker, 0, len(l.makers.changed))
	for _, m := range l.makers.changed {
		m.noted = false
		all = append(all, Maker{Thread: m.thread, Contexts: m.contexts, Streams: m.streams, Holds: m.holds})
	}
	l.makers.changed = l.makers.changed[:0]
	return all
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
		l.unmake(r.Thread, n, streamsOf)
		a.recost(now, l, func() {})
	case r.What == WantsHolds:
		l.holds -= min(-r.Count, l.holds)
		l.unmake(r.Thread, -r.Count, holdsOf)
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
	l.offerHeadroom()
	l.unmake(thread, n, contextsOf)
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
	return a.inside(l, thread) || !full && !own && l.device.entry[permit.Slot].first == nil
}

func (a *Arbiter) makeContexts(l *lease, thread uint32, n int, what What) {
	m := a.makes(l, thread)
	l.makers.note(m)
	if what == WantsHolds {
		l.holds = min(l.holds+n, maxObjects)
		m.holds = min(m.holds+n, maxObjects)
		return
	}
	l.contexts = min(l.contexts+n, maxObjects)
	m.contexts = min(m.contexts+n, maxObjects)
}
