package arbiter_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/reading"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// This file has no test. It has the world of most tests of the package: an arbiter with devices, and clients that allocate and free in fake
// credit words as the library does on its page. A fake word fails the test if the arbiter's sum differs from its calls.

const (
	kib accounting.Bytes = 1 << 10
	mib accounting.Bytes = 1 << 20
	gib accounting.Bytes = 1 << 30
)

const (
	closedBit = 1 << 63
	notifyBit = 1 << 62
	creditMax = 1<<62 - 1
)

// word is the credit word of a lease, as on the client's page. Both sides change it by compare-and-swap. low is the least credit since the
// arbiter's last change.
type word struct {
	of      *words
	id      arbiter.LeaseID
	state   atomic.Uint64
	low     atomic.Uint64
	granted accounting.Bytes // sum of the arbiter's calls
	peak    accounting.Bytes
	limit   accounting.Bytes
	pending accounting.Bytes
	away    accounting.Bytes
	gone    bool // the page cannot be reached
	told    reading.ClientReport
	streams int  // number of streams, while lent is true
	most    int  // most streams that the client may have, while lent is true
	called  bool // the client has made a call since the last Called
	lent    bool // the stream count is delegated to the client

	beforeTake func() // called just before the arbiter recalls credit; nil: nothing

	recounted bool // true during Recount, which changes granted but no credit word
}

// words are the credit words of all leases. They fail the test if the arbiter has another sum for a lease than its calls add up to.
type words struct {
	t     testing.TB
	arb   *arbiter.Arbiter
	all   map[arbiter.LeaseID]*word
	calls int
}

// add makes a word. granted is what a restored lease holds.
func (w *words) add(granted, credit accounting.Bytes) *word {
	x := &word{of: w}
	x.begin(granted, credit)
	return x
}

func (x *word) begin(granted, credit accounting.Bytes) {
	x.granted, x.peak = granted, granted-credit
	x.state.Store(uint64(credit))
	x.low.Store(uint64(credit))
}

func (x *word) Opened(id arbiter.LeaseID) {
	x.id = id
	x.of.all[id] = x
}

// check counts a call, and compares the arbiter's sum with that of its calls.
func (x *word) check(granted accounting.Bytes) {
	x.of.calls++
	if x.granted != granted && !x.recounted {
		x.of.t.Fatalf("the arbiter says %d bytes are granted, its calls add up to %d", granted, x.granted)
	}
}

// credit reads the clamped word, and reports a word that had to be clamped.
func (x *word) credit(state uint64) accounting.Bytes {
	c := accounting.Bytes(state & creditMax)
	if c > x.granted {
		x.of.arb.Clamped(start, x.id)
		return x.granted
	}
	return c
}

// change replaces the word and resets its low-water mark.
func (x *word) change(next func(credit accounting.Bytes, flags uint64) uint64) {
	x.of.calls++
	for {
		old := x.state.Load()
		credit := x.credit(old)
		x.fold()
		state := next(credit, old&^creditMax)
		if x.state.CompareAndSwap(old, state) {
			x.low.Store(state & creditMax)
			return
		}
	}
}

func (x *word) fold() {
	low := min(accounting.Bytes(x.low.Load()), x.credit(x.state.Load()))
	x.peak = max(x.peak, x.granted-min(low, x.granted))
}

func (x *word) Credit(granted accounting.Bytes) accounting.Bytes {
	if x.gone {
		return 0
	}
	x.check(granted)
	return x.credit(x.state.Load())
}

func (x *word) Take(granted, most accounting.Bytes) (got accounting.Bytes) {
	if x.gone {
		return 0
	}
	if x.beforeTake != nil {
		x.beforeTake()
	}
	x.check(granted)
	x.change(func(credit accounting.Bytes, flags uint64) uint64 {
		got = min(credit, most)
		return uint64(credit-got) | flags
	})
	x.granted -= got
	return got
}

func (x *word) Give(granted, n accounting.Bytes) bool {
	if x.gone {
		return false
	}
	x.check(granted)
	x.change(func(credit accounting.Bytes, flags uint64) uint64 { return uint64(credit+n) | flags })
	x.granted += n
	return true
}

func (x *word) Free(n accounting.Bytes) bool {
	if !x.gone {
		x.free(n)
	}
	return !x.gone
}

func (x *word) Grant(granted, n accounting.Bytes) {
	x.check(granted)
	x.change(func(credit accounting.Bytes, flags uint64) uint64 { return uint64(credit) | flags })
	x.granted += n
	x.fold()
}

func (x *word) Flag(closed, notify bool) {
	if x.gone {
		return
	}
	var flags uint64
	if closed {
		flags |= closedBit
	}
	if notify {
		flags |= notifyBit
	}
	x.change(func(credit accounting.Bytes, _ uint64) uint64 { return uint64(credit) | flags })
}

func (x *word) Limit(most accounting.Bytes) {
	x.of.calls++
	x.limit = most
}

func (x *word) Peak(granted accounting.Bytes) accounting.Bytes {
	if x.gone {
		return 0
	}
	x.check(granted)
	x.fold()
	return x.peak
}

func (x *word) SetAway(n accounting.Bytes) { x.away = n }

func (x *word) Pending() accounting.Bytes {
	if x.gone {
		return 0
	}
	return x.pending
}

func (x *word) Called() (called bool) {
	called, x.called = x.called, false
	return called
}

func (x *word) Recent(granted accounting.Bytes) accounting.Bytes {
	if x.gone {
		return 0
	}
	return granted - min(accounting.Bytes(x.low.Load()&creditMax), x.credit(x.state.Load()), granted)
}

// Lost does nothing: the word is already closed and empty.
func (x *word) Lost() {}

func (x *word) Report() (told reading.ClientReport) {
	if !x.gone {
		told = x.told
	}
	return told
}

func (x *word) Streams() (int, bool) {
	if x.gone || !x.lent {
		return 0, false
	}
	return x.streams, true
}

func (x *word) CloseStreams() (int, bool) {
	n, lent := x.Streams()
	x.lent = x.lent && !lent
	return n, lent
}

func (x *word) OpenStreams(n, most int) bool {
	if x.gone {
		return false
	}
	if x.lent {
		x.of.t.Fatalf("the count of lease %d is lent twice", x.id)
	}
	x.streams, x.most, x.lent = n, most, true
	return true
}

// fast takes n bytes from the credit without asking, as a client does.
func (x *word) fast(n accounting.Bytes) bool {
	for {
		old := x.state.Load()
		credit := old & creditMax
		if old&closedBit != 0 || credit < uint64(n) {
			return false
		}
		if x.state.CompareAndSwap(old, old-uint64(n)) {
			for low := x.low.Load(); credit-uint64(n) < low && !x.low.CompareAndSwap(low, credit-uint64(n)); {
				low = x.low.Load()
			}
			return true
		}
	}
}

// free gives n bytes back, and reports whether NOTIFY was set.
func (x *word) free(n accounting.Bytes) (notify bool) {
	for {
		old := x.state.Load()
		if x.state.CompareAndSwap(old, old+uint64(n)) {
			return old&notifyBit != 0
		}
	}
}

func (x *word) closed() bool { return x.state.Load()&closedBit != 0 }

func (x *word) idle() accounting.Bytes { return accounting.Bytes(x.state.Load() & creditMax) }

// start is the time at which every test begins.
var start = time.Unix(1_700_000_000, 0)

// world is an arbiter with fake words.
type world struct {
	t     testing.TB
	arb   *arbiter.Arbiter
	words *words
	now   time.Time
	pid   int
}

// newWorld makes an arbiter with devices 0, 1, … of the given totals.
func newWorld(t testing.TB, p rules.Policy, totals ...accounting.Bytes) *world {
	t.Helper()
	w := &words{t: t, all: map[arbiter.LeaseID]*word{}}
	w.arb = arbiter.New(p)
	for i, total := range totals {
		w.arb.AddDevice(start, rules.Device{Index: i, Vendor: "nvidia", Name: "Test", Total: total})
	}
	return &world{t: t, arb: w.arb, words: w, now: start, pid: 100}
}

// exact returns a policy without surplus, so that all sums are exact.
func exact(max accounting.Size) rules.Policy {
	p := rules.DefaultPolicy()
	p.Defaults.Max, p.Surplus = max, rules.NoSurplus
	return p
}

func unlimited() accounting.Size { return accounting.Size{Max: true} }

func size(b accounting.Bytes) accounting.Size { return accounting.Size{Bytes: b} }

func ptr[T any](v T) *T { return &v }

// process returns a new process of a user.
func (w *world) process(uid uint32, exe string) rules.Process {
	w.pid++
	groups := []string{"users"}
	if uid == eve || uid == ann {
		groups = append(groups, "students")
	}
	return rules.Process{PID: w.pid, StartTicks: uint64(w.pid) * 10, UID: uid, GID: uid,
		User: map[uint32]string{0: "root", bob: "bob", eve: "eve", ann: "ann"}[uid], Groups: groups, Exe: "/usr/bin/" + exe,
		Command: exe + " --run", Cgroup: "/user.slice"}
}

// client is the lease of one process on a device.
type client struct {
	w       *world
	process rules.Process
	session arbiter.SessionID
	lease   arbiter.LeaseID
	word    *word
	request uint64
}

// client opens a session with a lease, in a job, or in a job of its own if job is 0.
func (w *world) client(job arbiter.JobID, device int) *client {
	w.t.Helper()
	return w.clientOf(w.process(1000, "ffmpeg"), job, device)
}

func (w *world) clientOf(p rules.Process, job arbiter.JobID, device int) *client {
	w.t.Helper()
	s, err := w.arb.OpenSession(w.now, arbiter.SessionRequest{Process: p, Job: job})
	if err != nil {
		w.t.Fatal(err)
	}
	c := &client{w: w, process: p, session: s.ID}
	return c.on(device)
}

// on returns the lease of the same session on another device.
func (c *client) on(device int) *client {
	c.w.t.Helper()
	info, err := c.w.arb.Attach(c.w.now, c.session, device, c.w.words.add(0, 0))
	if err != nil {
		c.w.t.Fatal(err)
	}
	other := *c
	other.lease, other.word = info.ID, c.w.words.all[info.ID]
	return &other
}

// restored restores a session of an earlier daemon with its leases, whose words have no credit.
func (w *world) restored(r arbiter.SessionRequest, held ...arbiter.RestoredLease) (all []*client) {
	w.t.Helper()
	id, err := w.arb.RestoreSession(w.now, r)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, l := range held {
		x := w.words.add(l.Granted, 0)
		if _, err := w.arb.RestoreLease(w.now, id, l, x); err != nil {
			w.t.Fatal(err)
		}
		all = append(all, &client{w: w, process: r.Process, session: id, lease: x.id, word: x})
	}
	return all
}

func (c *client) alloc(n accounting.Bytes) arbiter.Result {
	c.request++
	return c.w.arb.Ask(c.w.now, arbiter.Request{Lease: c.lease, What: arbiter.WantsBytes, Bytes: n})
}

// must allocates n bytes, which must fit.
func (c *client) must(n accounting.Bytes) {
	c.w.t.Helper()
	if o := c.alloc(n); !o.Granted {
		c.w.t.Fatalf("%d bytes refused: %+v", n, o)
	}
}

// streams creates or destroys streams by asking, and then delegates the count if that is allowed.
func (c *client) streams(n int) arbiter.Result {
	out := c.w.arb.Ask(c.w.now, arbiter.Request{Lease: c.lease, What: arbiter.WantsStreams, Count: n})
	c.w.arb.DelegateStreams(c.lease)
	return out
}

// stream creates or destroys a stream as a client does: in its word, if the count is delegated to it.
func (c *client) stream(n int) bool {
	if x := c.word; x.lent && x.streams+n >= 0 && (n < 0 || x.streams+n <= x.most) {
		x.streams += n
		return true
	}
	return c.streams(n).Granted
}

// contexts makes or destroys contexts.
func (c *client) contexts(n int) arbiter.Result {
	out := c.w.arb.Ask(c.w.now, arbiter.Request{Lease: c.lease, What: arbiter.WantsContexts, Count: n})
	c.w.arb.DelegateStreams(c.lease)
	return out
}

// free gives bytes back, and reports that if NOTIFY is set.
func (c *client) free(n accounting.Bytes) {
	if c.word.free(n) {
		c.w.arb.Freed(c.w.now, c.lease)
	}
}

// row returns the lease's row of a snapshot.
func (c *client) row() figures.LeaseState {
	c.w.t.Helper()
	device := -1
	for _, l := range c.w.arb.Snapshot(c.w.now).Leases {
		if l.PID == c.process.PID && c.on(l.Device).lease == c.lease {
			return l
		}
		device = l.Device
	}
	c.w.t.Fatalf("no row for lease %d (last device %d)", c.lease, device)
	return figures.LeaseState{}
}

// forget ends a session whose memory is freed at once, or that had none.
func forget(a *arbiter.Arbiter, now time.Time, id arbiter.SessionID) {
	a.EndSession(now, id)
	for device := range a.Snapshot(now).Devices {
		a.Gone(now, id, device)
	}
}
