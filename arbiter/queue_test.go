package arbiter_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// Requests without room wait in order of priority, age and arrival until there is room or their time is over, and their clients learn what
// they wait for. queue_drive_test.go compares random steps with a reference; deadlock_test.go and slots_test.go have more cases.

// waiting returns a policy under which all jobs wait for bytes.
func waiting() rules.Policy {
	p := exact(unlimited())
	p.Defaults.OnFull = rules.OnFullWait
	return p
}

// wait allocates bytes, which must wait.
func (c *client) wait(n accounting.Bytes) arbiter.TicketID {
	c.w.t.Helper()
	o := c.alloc(n)
	if o.Waiting == 0 {
		c.w.t.Fatalf("%d bytes do not wait: %+v", n, o)
	}
	return o.Waiting
}

// served checks that all tickets decided since the last call were served, and which these are.
func (w *world) served(want ...arbiter.TicketID) {
	w.t.Helper()
	got := w.decided()
	if len(got) != len(want) {
		w.t.Fatalf("decided %v, want %v served", got, want)
	}
	for _, id := range want {
		if why, ok := got[id]; !ok || why != arbiter.ReasonNone {
			w.t.Fatalf("decided %v, want %v served", got, want)
		}
	}
}

// decided returns the decisions on tickets since the last call.
func (w *world) decided() map[arbiter.TicketID]arbiter.Reason {
	got := map[arbiter.TicketID]arbiter.Reason{}
	for _, d := range w.arb.Decisions() {
		if d.Notice == nil {
			got[d.Ticket] = reasonIn(d)
		}
	}
	return got
}

// refused checks that one ticket was refused since the last call, and the reason.
func (w *world) refused(id arbiter.TicketID, why arbiter.Reason) {
	w.t.Helper()
	if got := w.decided(); len(got) != 1 || got[id] != why {
		w.t.Fatalf("decided %v, want %d: %v", got, id, why)
	}
}

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	w.arb.MeasurePressure(w.now)
	w.now = w.now.Add(d)
	w.arb.Tick(w.now)
	w.arb.MeasurePressure(w.now)
}

func TestWaitersAreServedInOrderOfArrival(t *testing.T) {
	w := newWorld(t, waiting(), 1000)
	holder, first, second, third := w.client(0, 0), w.client(0, 0), w.client(0, 0), w.client(0, 0)
	holder.must(900)
	a, b, c := first.wait(600), second.wait(400), third.wait(300)
	if got := w.arb.Snapshot(w.now).Queue; len(got) != 3 || got[0].Ticket != uint64(a) || got[2].Pos != 3 ||
		got[1].WantsBytes != 400 || got[1].Reason != "device_full" {
		t.Errorf("%+v", got)
	}
	holder.free(400) // the third request fits now, but it is not its turn
	w.served()
	holder.free(100)
	w.served(a)
	holder.free(400)
	w.served(b)
	first.free(600)
	w.served(c)
	if s := w.arb.Snapshot(w.now); len(s.Queue) != 0 || s.Stats.QueueDepth != 0 || s.Stats.Waited != 3 {
		t.Errorf("%+v", s.Stats)
	}
}

func TestNoneOfSeveralCancelledRequestsIsServed(t *testing.T) {
	w := newWorld(t, waiting(), 1000)
	holder, large, small, later := w.client(0, 0), w.client(0, 0), w.client(0, 0), w.client(0, 0)
	holder.must(700)
	a, b, c := large.wait(500), small.wait(200), later.wait(300)
	if n := w.arb.CancelAll(w.now, []arbiter.TicketID{a, b, b, 99}, arbiter.ReasonCancelled); n != 2 {
		t.Errorf("%d were cancelled", n)
	}
	if got := w.decided(); len(got) != 3 || got[a] != arbiter.ReasonCancelled || got[b] != arbiter.ReasonCancelled || got[c] != arbiter.ReasonNone {
		t.Errorf("the cancelled requests had %v; there was room for the last one", got)
	}
}

// TestPartlyGrantedServerDoesNotBlockOlderHolders: two servers hold memory, and a third waits for the rest of what it needs. It never blocks the servers that
// have held memory for longer, however long it waits. It blocks a server that came later.
func TestPartlyGrantedServerDoesNotBlockOlderHolders(t *testing.T) {
	w := newWorld(t, waiting(), 1000)
	begin := func(n accounting.Bytes) *client {
		c := w.client(0, 0)
		c.must(n)
		w.pass(time.Second)
		return c
	}
	one, two, three := begin(300), begin(300), begin(200)
	ticket := three.wait(400)
	late := begin(0)
	w.pass(9 * time.Minute)
	for _, c := range []*client{one, two} {
		c.must(50)
		c.free(50)
		c.must(100)
	}
	two.free(100)
	if o := late.alloc(10); o.Waiting == 0 {
		t.Errorf("it came later: %+v", o)
	}
	w.served()
	one.free(350)
	if got := w.decided(); got[ticket] != arbiter.ReasonNone || len(got) != 2 {
		t.Errorf("%v", got)
	}
}

func TestPriorityAndAge(t *testing.T) {
	p := waiting()
	p.Rules = []rules.Rule{{Match: rules.Match{Exe: "urgent"}, Priority: ptr(2)}}
	w := newWorld(t, p, 1000)
	holder := w.client(0, 0)
	holder.must(1000)
	old := w.client(0, 0).wait(400)
	w.pass(3 * time.Minute)
	urgent := w.clientOf(w.process(1000, "urgent"), 0, 0).wait(400)
	young := w.client(0, 0).wait(400)
	if got := w.arb.Snapshot(w.now).Queue; got[0].Ticket != uint64(old) || got[1].Ticket != uint64(urgent) {
		t.Errorf("%+v", got)
	}
	holder.free(800)
	w.served(old, urgent)
	holder.free(200)
	w.served()
	w.refusedLater(young)
}

func (w *world) refusedLater(id arbiter.TicketID) {
	w.t.Helper()
	w.pass(10 * time.Minute)
	w.refused(id, arbiter.ReasonTimeout)
}

func TestTimeouts(t *testing.T) {
	for name, c := range map[string]struct {
		request arbiter.JobRequest
		after   time.Duration
	}{
		"as the rule says": {arbiter.JobRequest{Wait: true}, 5 * time.Second},
		"as the job says":  {arbiter.JobRequest{Wait: true, Timeout: 20 * time.Second}, 20 * time.Second},
		"never":            {arbiter.JobRequest{Wait: true, Forever: true}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := exact(unlimited())
			p.Defaults.WaitTimeout = 5 * time.Second
			w := newWorld(t, p, 1000)
			w.client(0, 0).must(900)
			ticket := w.client(w.job(t, c.request), 0).wait(200)
			if c.after == 0 {
				w.pass(24 * time.Hour)
				w.served()
				return
			}
			if due := w.arb.Due(); due.After(w.now.Add(c.after)) {
				t.Errorf("due in %v", due.Sub(w.now))
			}
			w.pass(c.after - 1)
			w.served()
			w.pass(1)
			w.refused(ticket, arbiter.ReasonTimeout)
			if s := w.arb.Snapshot(w.now).Stats; s.Timeouts != 1 || s.LastWaitMs != uint64(c.after.Milliseconds()) {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestTheFirstRefusalOfABurstComesAtOnce: the rule, the client's allocators and the client's environment decide how many requests of
// a burst are refused. A grant ends the burst, whether the daemon or the client's credit made it.
func TestTheFirstRefusalOfABurstComesAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		rule           *int
		caches, chosen bool
		refused        int
	}{
		"nothing said":                     {nil, false, false, 0},
		"an allocator with a cache":        {nil, true, false, 1},
		"the rule before the allocator":    {new(0), true, false, 0},
		"the rule without an allocator":    {new(3), false, false, 3},
		"the environment before the rule":  {new(3), true, true, 1},
		"turned off before the rule":       {new(3), false, true, 0},
		"turned off without a rule":        {nil, false, true, 0},
		"turned on without an allocator":   {nil, true, true, 1},
		"the rule and an allocator, twice": {new(2), true, false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			p := waiting()
			p.Defaults.WaitAfter = c.rule
			w := newWorld(t, p, 1000)
			holder, asks := w.client(0, 0), w.client(0, 0)
			holder.must(900)
			ask := func(n accounting.Bytes, thread uint32, fresh bool) arbiter.Result {
				return w.arb.Ask(w.now, arbiter.Request{Lease: asks.lease, What: arbiter.WantsBytes, Bytes: n, Thread: thread,
					Caches: c.caches, Chosen: c.chosen, Fresh: fresh})
			}
			burst := func(thread uint32, fresh bool) arbiter.TicketID {
				t.Helper()
				for i := range c.refused {
					if o := ask(200, thread, fresh && i == 0); o.Reason != arbiter.ReasonDeviceFull || !strings.Contains(o.Explain, "wait_after") {
						t.Fatalf("request %d: %+v", i, o)
					}
					w.pass(time.Minute) // however long the caches take
				}
				return ask(200, thread, fresh && c.refused == 0).Waiting
			}
			ticket := burst(1, false)
			holder.free(500)
			w.served(ticket)
			if o := ask(50, 1, false); !o.Granted {
				t.Fatalf("%+v", o)
			}
			holder.must(350)
			if burst(1, false) == 0 {
				t.Error("the burst after a grant does not end with a wait")
			}
			if burst(2, false) == 0 {
				t.Error("the burst of another thread does not end with a wait")
			}
			if burst(1, true) == 0 { // the client was granted memory out of its credit
				t.Error("the burst after a grant out of the credit does not end with a wait")
			}
		})
	}
}

func TestIdleCreditIsRecalledBeforeWaiting(t *testing.T) {
	w := newWorld(t, waiting(), 1000)
	rich, poor := w.client(0, 0), w.client(0, 0)
	rich.must(900)
	rich.free(300)
	poor.must(400) // no request waits
	if rich.word.idle() != 0 {
		t.Errorf("%d idle", rich.word.idle())
	}
	rich.free(100)
	ticket := poor.wait(300)
	if rich.word.idle() != 0 || rich.word.state.Load()&notifyBit == 0 {
		t.Error("what is idle was not called back, or a free will not be told")
	}
	rich.free(200)
	w.served(ticket)
	rich.free(1) // no request waits for it any more; the free reports itself once
	if rich.word.state.Load()&notifyBit != 0 {
		t.Error("a free still reports itself")
	}
}

func TestNotices(t *testing.T) {
	w := newWorld(t, waiting(), 1000)
	holder := w.client(0, 0)
	holder.must(900)
	first, second := w.client(0, 0).wait(500), w.client(0, 0).wait(300)
	n := w.arb.Notice(w.now, second)
	if n.Position != 2 || !strings.Contains(n.Text, "300 bytes") || !strings.Contains(n.Text, "ffmpeg[101] 900 bytes") {
		t.Errorf("%+v", n)
	}
	w.arb.Notice(w.now, first)
	w.pass(5 * time.Second)
	if d := w.arb.Decisions(); len(d) != 0 {
		t.Errorf("nothing has changed: %+v", d)
	}
	w.arb.Cancel(w.now, first, arbiter.ReasonCancelled)
	w.arb.Decisions()
	w.pass(5 * time.Second)
	d := w.arb.Decisions()
	if len(d) != 1 || d[0].Notice == nil || d[0].Ticket != second || d[0].Notice.Position != 1 {
		t.Errorf("%+v", d)
	}
	w.pass(5 * time.Second)
	if d := w.arb.Decisions(); len(d) != 0 {
		t.Errorf("said already: %+v", d)
	}
	if n := w.arb.Notice(w.now, first); n != (arbiter.Notice{}) {
		t.Errorf("%+v", n)
	}
}

// never ends a message about a request for which the reservations of others leave 400 bytes at most.
const never = "; it never fits beside the 600 bytes that others reserve: 400 bytes is the most"

// TestNoticeNamesUnusedReservations: a waiting client gets a notice with the holders and since when they hold, also for unused reservations, and
// also if the client has missed the notice before.
func TestNoticeNamesUnusedReservations(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 1000)
	min := func(n accounting.Bytes) arbiter.JobRequest {
		return arbiter.JobRequest{Process: w.process(1000, "gpuarb"), Command: "sleep 9", Min: ptr(size(n)), Max: ptr(size(n)), Timeout: time.Minute}
	}
	holder := w.job(t, min(600))
	w.pass(5 * time.Second)
	info, err := w.arb.OpenJob(w.now, min(700))
	if err != nil || info.Waiting == 0 {
		t.Fatalf("%+v, %v", info, err)
	}
	want := "waits for its memory.min of 700 bytes on GPU 0, position 1: 400 bytes free; holds: bob's job 1 (sleep) 600 bytes (reserved) for 5 s"
	if n := w.arb.Notice(w.now, info.Waiting); n.Text != want {
		t.Errorf("got  %q\nwant %q", n.Text, want)
	}
	program := w.client(holder, 0)
	program.must(500)
	want = "waits for its memory.min of 700 bytes on GPU 0, position 1: 400 bytes free; " +
		"holds: bob's ffmpeg[103] 500 bytes for 0 ms, bob's job 1 (sleep) 100 bytes (reserved) for 5 s"
	if n := w.arb.Notice(w.now, info.Waiting); n.Text != want {
		t.Errorf("got  %q\nwant %q", n.Text, want)
	}
	try := min(700)
	try.NoWait = true
	if _, err := w.arb.OpenJob(w.now, try); err == nil || !strings.Contains(err.Error(), "holds: bob's ffmpeg[103] 500 bytes, bob's job 1 (sleep) 100 bytes (reserved);") {
		t.Errorf("%v", err)
	}
	w.arb.Decisions()
	w.pass(time.Minute)
	got := w.arb.Decisions()
	if len(got) != 1 || got[0].Reason != arbiter.ReasonTimeout ||
		!strings.Contains(got[0].Explain, "ffmpeg[103] 500 bytes for 60 s") {
		t.Errorf("%+v", got)
	}
}

// TestReservationOfRuleIsNamed: if a rule reserves memory for a shared budget, refusals and notices name that budget as the holder.
func TestReservationOfRuleIsNamed(t *testing.T) {
	for scope, budget := range map[rules.Scope]string{rules.ScopeUser: "user eve's budget", rules.ScopeRule: "the budget shared by rule students"} {
		p := waiting()
		p.Rules = []rules.Rule{
			{Match: rules.Match{User: "bob"}, OnFull: ptr(rules.OnFullDeny)},
			{Key: "students", Match: rules.Match{Group: "students"}, Scope: &scope, Min: ptr(size(600))},
		}
		w := newWorld(t, p, 1000)
		refused, waits, holds := w.client(0, 0), w.clientOf(w.process(0, "train"), 0, 0), w.clientOf(w.process(eve, "a"), 0, 0)
		if o := refused.alloc(500); !strings.HasSuffix(o.Explain, "400 bytes left of the device's 1000 bytes; holds: "+budget+" 600 bytes (reserved)"+never) {
			t.Errorf("%s: %q", scope, o.Explain)
		}
		holds.must(150)
		ticket := waits.wait(500)
		want := "waits for 500 bytes on GPU 0, position 1: 400 bytes free; holds: " + budget + " 450 bytes (reserved), eve's a[103] 150 bytes for 0 ms" + never
		if n := w.arb.Notice(w.now, ticket); n.Text != want {
			t.Errorf("%s: %q\nwant %q", scope, n.Text, want)
		}
		w.arb.Decisions()
		w.pass(time.Minute)
		w.arb.Decisions()
		holds.must(450) // what was reserved is used: that is news
		w.pass(time.Minute)
		if d := w.arb.Decisions(); len(d) != 1 || strings.Contains(d[0].Notice.Text, "reserved") {
			t.Errorf("%s: %+v", scope, d)
		}
	}
}

// TestARefusalNamesThoseInFront: a request that is refused because of earlier requests gets a message with what is free, and for which
// request it is kept.
func TestARefusalNamesThoseInFront(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 64*gib)
	holder := w.client(0, 0)
	holder.must(64*gib - 500*mib)
	first := w.waiter(t, 1000)
	first.must(100 * mib)
	first.wait(2 * gib)
	w.pass(12 * time.Second)
	o := w.client(0, 0).alloc(100 * mib)
	name := fmt.Sprintf("waiter[%d]", first.process.PID)
	want := "out of memory on GPU 0: asked 100 MiB, 0 bytes left of the device's 64 GiB: 400 MiB free, " +
		"but kept for " + name + ", which has waited 12 s for 2 GiB; holds: "
	if o.Reason != arbiter.ReasonDeviceFull || o.Remaining != 0 || !strings.HasPrefix(o.Explain, want) {
		t.Errorf("%+v\nwant %s", o, want)
	}
	if o := w.client(0, 0).alloc(450 * mib); o.Remaining != 0 || !strings.Contains(o.Explain, "400 MiB free, but kept for "+name) {
		t.Errorf("%+v", o) // it would not have fitted either
	}
	second := w.waiter(t, 1000)
	second.wait(3 * gib)
	if o := w.client(0, 0).alloc(100 * mib); !strings.Contains(o.Explain, "kept for "+name+" and 1 more, the first of which has waited 12 s for 2 GiB") {
		t.Errorf("%+v", o)
	}
	busy := w.client(0, 0)
	if o := w.arb.Ask(w.now, arbiter.Request{Lease: busy.lease, What: arbiter.WantsBytes, Bytes: mib, NoWait: true}); !strings.Contains(o.Explain, "400 MiB free, but kept for "+name) {
		t.Errorf("%+v", o)
	}
	holder.free(10 * gib)
	if o := w.client(0, 0).alloc(100 * mib); !o.Granted {
		t.Errorf("nobody waits any more: %+v", o)
	}
}

// TestCreditThatIsGoneWhenItIsServed: a waiting request was to be served from credit of another process of its job, which that process has
// allocated meanwhile. Without the credit the budget of the job has no room. The request is refused at once, and does not wait for the
// device.
func TestCreditThatIsGoneWhenItIsServed(t *testing.T) {
	w := newWorld(t, waiting(), 1000)
	job := w.job(t, arbiter.JobRequest{Max: ptr(size(600))})
	c, second, other := w.client(job, 0), w.client(job, 0), w.client(0, 0)
	other.must(600)
	c.must(200)
	second.must(200)
	id := c.wait(200)
	second.word.free(100) // and does not report it yet
	if err := w.arb.SetJobLimits(w.now, job, rules.Change{Device: 0, Max: ptr(size(500))}); err != nil {
		t.Fatal(err)
	}
	w.served()
	second.word.beforeTake = func() { second.word.fast(100) }
	other.free(200)
	w.refused(id, arbiter.ReasonOverBudget)
}
