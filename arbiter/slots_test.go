package arbiter_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// At most slots.max jobs, processes or threads have objects on a device at a time; each returns its slot with its last object. This file
// also tests the memory reserved for contexts. permit/permit_test.go tests permits alone, and threads_test.go bounds of threads.

// capped returns a policy with a slots.max on each device.
func capped(slots int, scope rules.Scope) rules.Policy {
	p := exact(unlimited())
	p.Devices = []rules.DeviceRule{{SlotsMax: slots, SlotScope: scope}}
	return p
}

// holders returns the number of holders of slots of device 0.
func (w *world) holders() int { return w.arb.Snapshot(w.now).Devices[0].SlotsCurrent }

// of returns the same lease for another thread.
func (c *client) of(number uint32) *thread { return &thread{c, number} }

type thread struct {
	*client
	number uint32
}

func (t *thread) contexts(n int) arbiter.Result {
	return t.w.arb.Ask(t.w.now, arbiter.Request{Lease: t.lease, What: arbiter.WantsContexts, Count: n, Thread: t.number})
}

func (t *thread) hold(n int) arbiter.Result {
	return t.w.arb.Ask(t.w.now, arbiter.Request{Lease: t.lease, What: arbiter.WantsHolds, Count: n, Thread: t.number})
}

func (t *thread) streams(n int) arbiter.Result {
	return t.w.arb.Ask(t.w.now, arbiter.Request{Lease: t.lease, What: arbiter.WantsStreams, Count: n, Thread: t.number})
}

func (t *thread) alloc(n accounting.Bytes) arbiter.Result {
	t.request++
	return t.w.arb.Ask(t.w.now, arbiter.Request{Lease: t.lease, What: arbiter.WantsBytes, Bytes: n, Thread: t.number})
}

// TestNoWaitJobKeepsOneSlot: a job with NoWait has a slot for the first of its processes or threads before its program starts, and
// for the next one when the first has returned it. It is never refused because another job took the slot meanwhile.
func TestNoWaitJobKeepsOneSlot(t *testing.T) {
	for _, scope := range []rules.Scope{rules.ScopeProcess, rules.ScopeThread} {
		t.Run(string(scope), func(t *testing.T) {
			w := newWorld(t, capped(1, scope), 1000)
			job, other := w.job(t, arbiter.JobRequest{NoWait: true}), w.client(0, 0)
			ticket := other.contexts(1).Waiting
			if ticket == 0 || w.holders() != 1 {
				t.Fatalf("another has its slot before its program came, %d holders", w.holders())
			}
			if _, err := w.arb.OpenJob(w.now, arbiter.JobRequest{Process: w.process(1000, "x"), NoWait: true}); reasonOf(err) != arbiter.ReasonBusy {
				t.Errorf("one more of its kind starts: %v", err)
			}
			one, two := w.client(job, 0).of(1), w.client(job, 0).of(2)
			if !one.contexts(1).Granted || !one.alloc(10).Granted || w.holders() != 1 {
				t.Errorf("the first of its processes, %d holders", w.holders())
			}
			if o := two.contexts(1); o.Reason != arbiter.ReasonBusy {
				t.Errorf("a second at the same time: %+v", o)
			}
			one.contexts(-1)
			one.free(10)
			w.served()
			if !two.contexts(1).Granted {
				t.Error("the next one")
			}
			forget(w.arb, w.now, two.session)
			w.served()
			if !one.streams(1).Granted || w.holders() != 1 {
				t.Errorf("and the first again, %d holders", w.holders())
			}
			forget(w.arb, w.now, one.session)
			w.arb.CloseJob(w.now, job)
			w.served(ticket)
		})
	}
}

// TestUnusedSpareSlotIsReturned: a job returns the slot that it keeps for its first process when it ends and when it is released.
func TestUnusedSpareSlotIsReturned(t *testing.T) {
	for name, end := range map[string]func(w *world, id arbiter.JobID){
		"ended":    func(w *world, id arbiter.JobID) { w.arb.CloseJob(w.now, id) },
		"released": func(w *world, id arbiter.JobID) { w.arb.ReleaseJob(w.now, id) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, capped(1, rules.ScopeProcess), 1000)
			job := w.job(t, arbiter.JobRequest{NoWait: true})
			ticket := w.client(0, 0).contexts(1).Waiting
			end(w, job)
			w.served(ticket)
		})
	}
}

func TestSlotsOfProcessesAndThreads(t *testing.T) {
	w := newWorld(t, capped(1, rules.ScopeProcess), 1000)
	job := w.job(t, arbiter.JobRequest{})
	one, two := w.client(job, 0), w.client(job, 0)
	one.contexts(1)
	if o := two.contexts(1); o.Waiting == 0 || w.holders() != 1 {
		t.Errorf("%+v", o)
	}

	w = newWorld(t, capped(1, rules.ScopeThread), 1000)
	c := w.client(0, 0)
	first, second := c.of(1), c.of(2)
	first.contexts(1)
	first.streams(1)
	first.alloc(10)
	ticket := second.streams(1).Waiting
	if ticket == 0 {
		t.Fatal("another thread takes a slot of its own")
	}
	first.contexts(-1)
	w.served()
	second.w.arb.Ask(w.now, arbiter.Request{Lease: c.lease, What: arbiter.WantsStreams, Count: -1, Thread: 1}) // another thread destroys it: the count is the maker's
	w.served(ticket)
	c.free(10)
	want := []arbiter.Maker{{Thread: 1}, {Thread: 2, Streams: 1}} // the first has nothing any more
	if got := w.arb.Makers(c.lease); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	if got := w.arb.Makers(c.lease); got != nil {
		t.Errorf("told twice: %+v", got)
	}
}

func TestAThreadsMemoryAndHolds(t *testing.T) {
	w := newWorld(t, capped(1, rules.ScopeThread), 1000)
	c := w.client(0, 0)
	first, second := c.of(1), c.of(2)
	first.hold(1) // hold on the primary context
	ticket := second.hold(1).Waiting
	if first.alloc(10); ticket == 0 || c.row().Contexts != 0 {
		t.Errorf("ticket %d, %+v", ticket, c.row())
	}
	first.hold(-1)
	w.served(ticket)
	second.hold(-1)
	c.free(10)

	if !first.alloc(10).Granted { // it has nothing else: its memory keeps the slot
		t.Error("no slot")
	}
	waits := second.alloc(10).Waiting
	c.free(10)
	w.served(waits)
}

// TestContextsThatExistAlready: existing contexts are counted, and take a slot if one is free. If none is, the next request waits for one.
func TestContextsThatExistAlready(t *testing.T) {
	w := newWorld(t, capped(1, ""), 1000)
	one, two := w.client(0, 0), w.client(0, 0)
	noticed := func(c *client) arbiter.Result {
		return w.arb.Ask(w.now, arbiter.Request{Lease: c.lease, What: arbiter.WantsContexts, Count: 1, Noticed: true})
	}
	if o := noticed(one); !o.Granted || w.holders() != 1 {
		t.Errorf("%+v", o)
	}
	if o := noticed(two); !o.Granted || o.Current != 1 || w.holders() != 1 {
		t.Errorf("%+v", o)
	}
	ticket := two.alloc(10).Waiting
	one.contexts(-1)
	w.served(ticket)
}

// TestAContextsCostIsReserved: the cost of a context is reserved before it is made: an estimate at first, then the largest measured cost. A
// reading replaces it, and nothing counts twice.
func TestAContextsCostIsReserved(t *testing.T) {
	p := exact(unlimited())
	p.ContextReserve = size(50)
	w := newWorld(t, p, 1600)
	capacity := func() accounting.Bytes { return w.arb.Snapshot(w.now).Devices[0].Capacity }
	c := w.client(0, 0)
	if !c.contexts(1).Granted || capacity() != 1550 {
		t.Fatalf("capacity %d", capacity())
	}
	observe := func(figures ...arbiter.ProcessUsage) {
		w.now = w.now.Add(time.Second)
		w.arb.Observe(w.now, arbiter.Usage{Device: 0, Processes: figures, Began: w.now})
	}
	own := arbiter.ProcessUsage{PID: c.process.PID, StartTicks: c.process.StartTicks, Bytes: 70}
	observe(own)
	if capacity() != 1550 {
		t.Errorf("capacity %d, and one reading proves nothing", capacity())
	}
	observe(own)
	if capacity() != 1530 {
		t.Errorf("capacity %d", capacity())
	}
	other := w.client(0, 0)
	if !other.contexts(1).Granted || capacity() != 1460 {
		t.Errorf("capacity %d: another costs what was seen", capacity())
	}
	other.contexts(-1)
	if capacity() != 1530 {
		t.Errorf("capacity %d", capacity())
	}
	c.must(1500)
	if o := other.contexts(1); o.Reason != arbiter.ReasonDeviceFull || o.Requested != 70 || o.Remaining != 30 {
		t.Errorf("%+v", o)
	}
	full := waiting()
	full.ContextReserve = accounting.Size{PerMille: 500}
	w = newWorld(t, full, 1600)
	c, other = w.client(0, 0), w.client(0, 0)
	c.must(1510)
	ticket := other.contexts(1).Waiting // the expected cost is at most a sixteenth of the device: 100 bytes
	c.free(10)
	w.served(ticket)
}

// TestContextReusesFreedContextMemory: a program whose context has ended can make the next one with its memory, before a reading shows that
// memory as free. The memory is granted to no other client on the program's report, and is not granted twice.
func TestContextReusesFreedContextMemory(t *testing.T) {
	p := exact(unlimited())
	p.ContextReserve = size(50)
	w := newWorld(t, p, 1600)
	c, other := w.client(0, 0), w.client(0, 0)
	c.contexts(2)
	own := c.figure(100)
	w.read(3, own)
	other.must(1500)
	full := other.figure(1500)
	for range 3 {
		if c.contexts(-1); c.contexts(1).Reason != arbiter.ReasonNone {
			t.Fatal("refused where its last context was")
		}
		if o := c.contexts(1); o.Reason != arbiter.ReasonDeviceFull {
			t.Errorf("one more than there were: %+v", o)
		}
	}
	w.read(2, own, full)
	c.contexts(-1)
	if o := other.contexts(1); o.Reason != arbiter.ReasonDeviceFull {
		t.Errorf("granted on somebody else's word: %+v", o)
	}
	w.read(1, own, full) // this reading still shows the memory of both contexts, so that none of it is free
	if o := c.contexts(1); o.Reason != arbiter.ReasonDeviceFull {
		t.Errorf("what the reading shows is not free: %+v", o)
	}
	w.read(1, c.figure(50), full)
	if d := w.read(1, c.figure(50), full); d.Overhead != 50 || !other.contexts(1).Granted {
		t.Errorf("%+v", d)
	}
}

// TestWaitingContextLosesFreedMemoryAtReading: a request that waits for contexts waits for the memory of all of them. After a reading, freed memory of
// ended contexts no longer counts for it.
func TestWaitingContextLosesFreedMemoryAtReading(t *testing.T) {
	w := newWorld(t, waiting(), 1600)
	c, other := w.client(0, 0), w.client(0, 0)
	c.contexts(1)
	w.read(3, c.figure(50))
	other.must(1550)
	c.contexts(-1)
	ticket := c.contexts(2).Waiting
	w.read(2, other.figure(1550))
	other.free(40)
	w.arb.Freed(w.now, other.lease)
	if got := w.decided(); ticket == 0 || len(got) != 0 {
		t.Fatalf("ticket %d, decided %v with room for one context and a half", ticket, got)
	}
	other.free(10)
	w.arb.Freed(w.now, other.lease)
	w.served(ticket)
}

func TestSlotsComeBackAfterARestart(t *testing.T) {
	p := capped(1, rules.ScopeThread)
	w := newWorld(t, p, 1000)
	restore := func(l arbiter.RestoredLease) *client {
		return w.restored(arbiter.SessionRequest{Process: w.process(1000, "x")}, l)[0]
	}
	c := restore(arbiter.RestoredLease{Contexts: 2, Streams: 1, Makers: []arbiter.Maker{{Thread: 3, Contexts: 2}, {Thread: 4, Streams: 1}}})
	if w.holders() != 2 {
		t.Errorf("%d holders", w.holders())
	}
	unknown := restore(arbiter.RestoredLease{Contexts: 1, Granted: 10})
	w.arb.Tick(w.now)
	ticket := w.client(0, 0).of(1).contexts(1).Waiting
	c.of(3).contexts(-2)
	c.of(4).streams(-1)
	if w.holders() != 1 {
		t.Errorf("%d holders", w.holders())
	}
	unknown.of(9).contexts(-1) // a context whose thread is unknown
	w.served(ticket)
}

// TestSlotAboveMaxIsNotRestoredAfterRestart: a client that had a slot in a daemon with more slots, and then freed everything without a
// report, does not get the slot back.
func TestSlotAboveMaxIsNotRestoredAfterRestart(t *testing.T) {
	w := newWorld(t, capped(1, rules.ScopeJob), 1000)
	var all []*client
	for range 2 {
		all = append(all, w.restored(arbiter.SessionRequest{Process: w.process(1000, "x")}, arbiter.RestoredLease{Granted: 10})...)
	}
	w.arb.Tick(w.now)
	all[1].word.free(10)
	if ticket := all[1].alloc(10).Waiting; ticket == 0 || w.holders() != 1 {
		t.Errorf("ticket %d, %d holders", ticket, w.holders())
	}
}

// TestHoldersComeBackWithTheirTime: notices show since when holders have their slots, over a restart too: since they took them, or at least
// since their lease was opened.
func TestHoldersComeBackWithTheirTime(t *testing.T) {
	w := newWorld(t, capped(3, rules.ScopeJob), 1000)
	ago := func(d time.Duration) time.Time { return w.now.Add(-d) }
	for id, since := range map[arbiter.JobID]time.Time{7: ago(3 * time.Hour), 8: {}, 9: {}} {
		request := arbiter.JobRequest{Process: w.process(1000, "gpuarb"), Command: "sleep 9", Claim: true}
		if err := w.arb.RestoreJob(w.now, arbiter.RestoredJob{ID: id, Request: request, Since: since}); err != nil {
			t.Fatal(err)
		}
	}
	for _, opened := range []time.Duration{50 * time.Second, 70 * time.Second, 60 * time.Second} {
		w.restored(arbiter.SessionRequest{Process: w.process(1000, "x"), Job: 8}, arbiter.RestoredLease{Granted: 10, Opened: ago(opened)})
	}
	want := "3 of 3 slots (slots.max) are held by bob's job 7 (sleep) for 3 h, bob's job 8 (sleep) for 70 s, bob's job 9 (sleep) for 0 ms"
	if n := w.arb.Notice(w.now, w.mustClaim(arbiter.JobRequest{}).Waiting); !strings.HasSuffix(n.Text, want) {
		t.Errorf("got %q, want … %q", n.Text, want)
	}
}
