package arbiter_test

import (
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// These tests check further cases of the choice of jobs that are asked to make room; suspend_test.go has the plain ones. They also check
// what becomes of a suspension when a limit is lowered, a process ends, a device is lost, a request is cancelled, or the policy changes.

// suspended makes a job that held 6 GiB on a device of 8 GiB, was suspended by a user, and gave everything back.
func suspended(t *testing.T, p rules.Policy) (w *world, c *client, job arbiter.JobID) {
	t.Helper()
	w = newWorld(t, p, 8*gib)
	c = w.client(0, 0)
	c.must(6 * gib)
	job = c.jobOf()
	w.out(c, 6*gib)
	return w, c, job
}

// out suspends the job of a client as a user would. The client frees n bytes.
func (w *world) out(c *client, n accounting.Bytes) {
	w.t.Helper()
	if err := w.arb.Suspend(w.now, c.jobOf(), nil); err != nil {
		w.t.Fatal(err)
	}
	e := w.arb.Errands()
	c.free(n)
	w.arb.ErrandDone(w.now, e[0].ID, "")
	if w.residence(e[0].Job) == arbiter.Suspending { // the job kept a part; it is suspended when its time to give memory back is over
		w.errandsIn(2 * time.Second)
	}
	if r := w.residence(e[0].Job); r != arbiter.Suspended {
		w.t.Fatalf("it is %q", r)
	}
}

// returnNever returns a policy under which only a person lets jobs return.
func returnNever() rules.Policy {
	p := evicting()
	p.Defaults.Evict.Return = rules.ReturnNever
	return p
}

// TestTheFirstOfEachQueue: a request that waits for a slot does not hide the one behind it that waits for memory.
func TestTheFirstOfEachQueue(t *testing.T) {
	p := evicting()
	w := newWorld(t, p, 8*gib)
	if err := w.arb.SetSlots(w.now, 0, 2); err != nil {
		t.Fatal(err)
	}
	idle, small := w.client(0, 0), w.client(0, 0)
	idle.must(5 * gib)
	small.must(gib)
	if o := w.client(0, 0).alloc(gib); o.Waiting == 0 { // there are two slots
		t.Fatalf("%+v", o)
	}
	w.errandsIn(20 * time.Second)
	if o := small.alloc(3 * gib); o.Waiting == 0 {
		t.Fatalf("%+v", o)
	}
	if got := w.errandsIn(6 * time.Second); len(got) != 1 || got[0].Job != idle.jobOf() {
		t.Errorf("%+v", got)
	}
}

// TestACallJustNow: a job that was idle for long and made a call since the last reading is not idle.
func TestACallJustNow(t *testing.T) {
	w := newWorld(t, evicting(), 8*gib)
	c := w.client(0, 0)
	c.must(6 * gib)
	w.errandsIn(20 * time.Second)
	if o := w.client(0, 0).alloc(4 * gib); o.Waiting == 0 {
		t.Fatalf("%+v", o)
	}
	w.errandsIn(4 * time.Second)
	c.word.called = true
	w.now = w.now.Add(time.Second)
	w.arb.Tick(w.now) // no reading and no snapshot came in between
	if got := w.arb.Errands(); got != nil {
		t.Errorf("%+v", got)
	}
	c.word.pending = gib // a thread is inside an allocation, for as long as the driver takes
	if got := w.errandsIn(time.Minute); got != nil {
		t.Errorf("inside an allocation: %+v", got)
	}
}

// TestAHungDevice: a device that does not answer does not tell how busy its jobs are, and none of them is asked.
func TestAHungDevice(t *testing.T) {
	w := newWorld(t, evicting(), 8*gib)
	w.client(0, 0).must(6 * gib)
	w.errandsIn(20 * time.Second)
	w.client(0, 0).alloc(4 * gib)
	w.arb.Unresponsive(w.now, 0, time.Minute)
	if got := w.errandsIn(time.Minute); got != nil {
		t.Errorf("%+v", got)
	}
	w.arb.Responsive(w.now, 0)
	if got := w.errandsIn(2 * time.Second); len(got) != 1 {
		t.Errorf("%+v", got)
	}
}

// TestWhoMayNotBeAsked: a job is not asked if it has a higher priority, a reservation or a claim. It is not asked either if its evict.how
// is "never", or is "unit" and the job has no unit of its own.
func TestWhoMayNotBeAsked(t *testing.T) {
	for name, c := range map[string]struct {
		rule    rules.Rule
		request arbiter.JobRequest
	}{
		"a higher priority": {rule: rules.Rule{Priority: ptr(1)}},
		"a reservation":     {rule: rules.Rule{Min: ptr(size(gib))}},
		"never":             {rule: rules.Rule{Evict: rules.EvictRule{How: ptr(rules.EvictNever)}}},
		"a claim":           {request: arbiter.JobRequest{Claim: true, Devices: []int{0}}},
		"a unit of others":  {rule: rules.Rule{Evict: rules.EvictRule{How: ptr(rules.EvictByUnit)}}},
	} {
		t.Run(name, func(t *testing.T) {
			p := evicting()
			c.rule.Match = rules.Match{User: "eve"}
			p.Rules = []rules.Rule{c.rule}
			w := newWorld(t, p, 8*gib)
			c.request.Process = w.process(eve, "gpuarb")
			j, err := w.arb.OpenJob(w.now, c.request)
			if err != nil {
				t.Fatal(err)
			}
			w.clientOf(w.process(eve, "x"), j.ID, 0).must(6 * gib)
			w.errandsIn(20 * time.Second)
			w.client(0, 0).alloc(4 * gib)
			if got := w.errandsIn(time.Minute); got != nil {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestThoseThatTheyNeed: of two devices, only jobs on the device of the request are asked, and one job that has memory on both is asked once.
func TestThoseThatTheyNeed(t *testing.T) {
	w := newWorld(t, evicting(), 8*gib, 8*gib)
	both := w.client(0, 0)
	both.must(6 * gib)
	both.on(1).must(6 * gib)
	w.errandsIn(time.Second)
	other := w.client(0, 1)
	other.must(2 * gib)
	w.errandsIn(20 * time.Second)
	a, b := w.client(0, 0), w.client(0, 1)
	a.alloc(4 * gib)
	b.alloc(4 * gib)
	if got := w.errandsIn(6 * time.Second); len(got) != 1 || got[0].Job != both.jobOf() {
		t.Errorf("%+v", got)
	}
}

// TestWithoutRoomInTheUsersLimit: for a request that waits at the limit of its user, only jobs of that user are asked.
func TestWithoutRoomInTheUsersLimit(t *testing.T) {
	w := newWorld(t, evicting(), 8*gib)
	if err := w.arb.SetUserLimits(w.now, bob, "", rules.Change{Device: 0, Max: ptr(size(3 * gib))}); err != nil {
		t.Fatal(err)
	}
	others := w.clientOf(w.process(eve, "x"), 0, 0)
	others.must(4 * gib)
	w.errandsIn(time.Second)
	own := w.clientOf(w.process(bob, "x"), 0, 0)
	own.must(2 * gib)
	w.errandsIn(20 * time.Second)
	if o := w.clientOf(w.process(bob, "y"), 0, 0).alloc(2 * gib); o.Waiting == 0 {
		t.Fatalf("%+v", o)
	}
	if got := w.errandsIn(6 * time.Second); len(got) != 1 || got[0].Job != own.jobOf() {
		t.Errorf("%+v", got)
	}
}

// TestReturnsToItsContexts: when a suspended job returns, the cost of all the contexts that it had is reserved beside its memory, and no
// context waits.
func TestReturnsToItsContexts(t *testing.T) {
	p := returnNever()
	p.ContextReserve = size(gib / 2)
	w := newWorld(t, p, 8*gib)
	j, err := w.arb.OpenJob(w.now, arbiter.JobRequest{Process: w.process(bob, "gpuarb")})
	if err != nil {
		t.Fatal(err)
	}
	one, two := w.client(j.ID, 0), w.client(j.ID, 0)
	for _, c := range []*client{one, two} {
		if o := c.contexts(1); !o.Granted {
			t.Fatalf("%+v", o)
		}
		c.must(gib)
	}
	if err := w.arb.Suspend(w.now, j.ID, nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*client{one, two} {
		c.free(gib)
		c.contexts(-1)
	}
	w.arb.Observe(w.now, arbiter.Usage{Device: 0})
	w.arb.ErrandDone(w.now, w.arb.Errands()[0].ID, "")
	other := w.client(0, 0)
	other.must(6 * gib)
	if err := w.arb.Resume(w.now, j.ID, nil); err != nil || w.residence(j.ID) != arbiter.Suspended {
		t.Fatalf("%v, %q: 2 GiB are free, and it needs 3", err, w.residence(j.ID))
	}
	other.free(gib)
	w.errandsIn(time.Second)
	if w.residence(j.ID) != arbiter.Resuming {
		t.Fatalf("it is %q", w.residence(j.ID))
	}
	if o := w.client(0, 0).alloc(1); o.Waiting == 0 {
		t.Errorf("another job got a byte: %+v", o)
	}
	for _, c := range []*client{one, two} {
		if o := c.contexts(1); !o.Granted {
			t.Errorf("its context: %+v", o)
		}
		c.must(gib)
	}
}

// TestALimitLoweredMeanwhile: if the limit of a job is lowered while it is suspended, as much is reserved for its return as the new limit
// allows.
func TestALimitLoweredMeanwhile(t *testing.T) {
	w, c, job := suspended(t, returnNever())
	if err := w.arb.SetProcessLimits(w.now, rules.Change{Device: 0, Max: ptr(size(2 * gib))}, c.session); err != nil {
		t.Fatal(err)
	}
	other := w.client(0, 0)
	other.must(5 * gib)
	if err := w.arb.Resume(w.now, job, nil); err != nil || w.residence(job) != arbiter.Resuming {
		t.Fatalf("%v, %q", err, w.residence(job))
	}
	if o := other.alloc(2 * gib); o.Waiting == 0 {
		t.Errorf("%+v", o)
	}
	c.must(2 * gib)
}

// TestAResumeThatCannotBe: a return that can never have room is refused, with the reason, and the job stays suspended.
func TestAResumeThatCannotBe(t *testing.T) {
	w, _, job := suspended(t, returnNever())
	if err := w.arb.SetUserLimits(w.now, bob, "", rules.Change{Device: 0, Max: ptr(size(gib))}); err != nil {
		t.Fatal(err)
	}
	if err := w.arb.Resume(w.now, job, nil); err == nil {
		t.Error("it was accepted")
	}
	if r := w.residence(job); r != arbiter.Suspended {
		t.Errorf("it is %q", r)
	}
}

// TestACancelledReturn: a job whose return is cancelled stays suspended, and may ask again. The end of its process ends the request.
func TestACancelledReturn(t *testing.T) {
	w, c, job := suspended(t, returnNever())
	w.client(0, 0).must(4 * gib)
	for range 2 {
		if err := w.arb.Resume(w.now, job, nil); err != nil {
			t.Fatal(err)
		}
		if n := w.arb.CancelJob(w.now, job); n != 1 || w.residence(job) != arbiter.Suspended {
			t.Fatalf("%d cancelled, %q", n, w.residence(job))
		}
	}
	if err := w.arb.Resume(w.now, job, nil); err != nil {
		t.Fatal(err)
	}
	forget(w.arb, w.now, c.session)
	if q := w.arb.Snapshot(w.now).Queue; len(q) != 0 {
		t.Errorf("the job has ended, and its return waits: %+v", q)
	}
	w.errandsIn(3 * time.Second)
}

// TestItEndsOnItsWay: when a job ends while memory is reserved for its return, other jobs get that memory.
func TestItEndsOnItsWay(t *testing.T) {
	w, c, job := suspended(t, returnNever())
	if err := w.arb.Resume(w.now, job, nil); err != nil {
		t.Fatal(err)
	}
	errand := w.arb.Errands()[0]
	other := w.client(0, 0)
	if o := other.alloc(4 * gib); o.Waiting == 0 {
		t.Fatalf("%+v", o)
	}
	forget(w.arb, w.now, c.session)
	w.arb.ErrandDone(w.now, errand.ID, "the process has ended")
	if q := w.arb.Snapshot(w.now).Queue; len(q) != 0 {
		t.Errorf("%+v", q)
	}
}

// TestALostDevice: a suspended job becomes resident when the only device on which it held memory is lost. Nothing waits in the queue for
// it.
func TestALostDevice(t *testing.T) {
	w := newWorld(t, returnNever(), 8*gib, 8*gib)
	c := w.client(0, 0)
	c.must(6 * gib)
	second := c.on(1)
	second.must(6 * gib)
	second.free(6 * gib)
	w.out(c, 6*gib)
	job := c.jobOf()
	second.must(0)
	w.arb.LoseDevice(w.now, 0)
	if r := w.residence(job); r != arbiter.Resident {
		t.Errorf("it is %q", r)
	}
	if q := w.arb.Snapshot(w.now).Queue; len(q) != 0 {
		t.Errorf("%+v", q)
	}
}

// TestAHookThatFailsAndTook: a job is stuck after its hook has failed, and becomes resident when it has all its memory again.
func TestAHookThatFailsAndTook(t *testing.T) {
	w, c, job := suspended(t, returnNever())
	if err := w.arb.Resume(w.now, job, nil); err != nil {
		t.Fatal(err)
	}
	w.arb.ErrandDone(w.now, w.arb.Errands()[0].ID, "exit status 1")
	if r := w.residence(job); r != arbiter.Stuck {
		t.Fatalf("it is %q", r)
	}
	c.must(6 * gib)
	w.errandsIn(time.Second)
	if r := w.residence(job); r != arbiter.Resident {
		t.Errorf("it is %q", r)
	}
}

// TestAStuckJobIsGivenUp: if a user suspends a stuck job again, other jobs get the memory that was reserved for it. The user can resume it
// later.
func TestAStuckJobIsGivenUp(t *testing.T) {
	w, c, job := suspended(t, returnNever())
	if err := w.arb.Resume(w.now, job, nil); err != nil {
		t.Fatal(err)
	}
	w.arb.ErrandDone(w.now, w.arb.Errands()[0].ID, "exit status 1")
	other := w.client(0, 0)
	if o := other.alloc(4 * gib); o.Waiting == 0 {
		t.Fatalf("%+v", o)
	}
	if err := w.arb.Suspend(w.now, job, nil); err != nil {
		t.Fatal(err)
	}
	w.arb.ErrandDone(w.now, w.arb.Errands()[0].ID, "")
	if r := w.residence(job); r != arbiter.Suspended || len(w.arb.Snapshot(w.now).Queue) != 0 {
		t.Fatalf("it is %q", r)
	}
	other.free(4 * gib)
	if err := w.arb.Resume(w.now, job, nil); err != nil || w.residence(job) != arbiter.Resuming {
		t.Fatalf("%v, %q", err, w.residence(job))
	}
	c.must(6 * gib)
}

// TestAHookThatEndsEarly: after the end of a hook, memory stays reserved for evict.min_resident, because the server may allocate later.
// Then what the server has not taken is free.
func TestAHookThatEndsEarly(t *testing.T) {
	w, c, job := suspended(t, returnNever())
	if err := w.arb.Resume(w.now, job, nil); err != nil {
		t.Fatal(err)
	}
	w.arb.ErrandDone(w.now, w.arb.Errands()[0].ID, "")
	w.errandsIn(30 * time.Second)
	c.must(2 * gib)
	if o := w.client(0, 0).alloc(4 * gib); o.Waiting == 0 {
		t.Fatalf("%+v", o)
	}
	w.errandsIn(31 * time.Second)
	if r := w.residence(job); r != arbiter.Resident || len(w.arb.Snapshot(w.now).Queue) != 0 {
		t.Errorf("it is %q", r)
	}
}

// TestAReloadMeanwhile: a suspended job returns by the hook of the present policy. If that has no hook any more, it returns by the hook of
// its suspension.
func TestAReloadMeanwhile(t *testing.T) {
	p := returnNever()
	p.Defaults.Evict.Resume = rules.MakeCommand([]string{"/old"})
	w, _, job := suspended(t, p)
	p.Defaults.Evict.Resume = rules.MakeCommand([]string{"/new"})
	w.arb.SetPolicy(w.now, p)
	if err := w.arb.Resume(w.now, job, nil); err != nil {
		t.Fatal(err)
	}
	e := w.arb.Errands()[0]
	if got := e.Evict.Resume.Args(); len(got) != 1 || got[0] != "/new" {
		t.Errorf("%v", got)
	}
	w.arb.ErrandDone(w.now, e.ID, "exit status 1")
	p.Defaults.Evict.How = rules.EvictNever
	w.arb.SetPolicy(w.now, p)
	if err := w.arb.Resume(w.now, job, nil); err != nil {
		t.Fatal(err)
	}
	if e := w.arb.Errands()[0]; e.Evict.How != rules.EvictByHook {
		t.Errorf("%+v", e)
	}
}

// TestAReturnKeepsItsPlace: a suspended job that kept a part of its memory does not pass requests that came before its return.
func TestAReturnKeepsItsPlace(t *testing.T) {
	w := newWorld(t, returnNever(), 8*gib)
	c := w.client(0, 0)
	c.must(6 * gib)
	job := c.jobOf()
	w.out(c, 4*gib)
	w.now = w.now.Add(time.Second)
	holder := w.client(0, 0)
	holder.must(5 * gib)
	first := w.client(0, 0)
	if o := first.alloc(5 * gib); o.Waiting == 0 {
		t.Fatalf("%+v", o)
	}
	if err := w.arb.Resume(w.now, job, nil); err != nil {
		t.Fatal(err)
	}
	holder.free(4 * gib) // enough for the return, and for the earlier request if the return does not pass it
	w.errandsIn(time.Second)
	if r := w.residence(job); r != arbiter.Suspended {
		t.Errorf("it is %q", r)
	}
}

// TestTheUnitOfAnother: without a unit of its own a job whose rule says "unit" cannot be suspended by hand.
func TestTheUnitOfAnother(t *testing.T) {
	p := evicting()
	p.Defaults.Evict.How = rules.EvictByUnit
	w := newWorld(t, p, 8*gib)
	c := w.client(0, 0)
	c.must(gib)
	if err := w.arb.Suspend(w.now, c.jobOf(), nil); err == nil {
		t.Error("it has no unit")
	}
	x := w.process(bob, "vllm")
	x.Unit = "vllm.service"
	y := w.process(bob, "helper")
	y.Unit = x.Unit
	one, two := w.clientOf(x, 0, 0), w.clientOf(y, 0, 0)
	one.must(gib)
	two.must(gib)
	if err := w.arb.Suspend(w.now, one.jobOf(), nil); err == nil {
		t.Error("another job runs in its unit")
	}
}

// TestARunInAUnit: the job of a `gpuarb run` that starts in the unit of a suspended job takes over what is reserved for that job, which
// ends.
func TestARunInAUnit(t *testing.T) {
	p := evicting()
	p.Defaults.Evict.How, p.Defaults.Evict.Return = rules.EvictByUnit, rules.ReturnOnUse
	w := newWorld(t, p, 8*gib)
	run := func() arbiter.JobInfo {
		t.Helper()
		r := arbiter.JobRequest{Process: w.process(bob, "gpuarb")}
		r.Process.Unit = "vllm.service"
		j, err := w.arb.OpenJob(w.now, r)
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	inUnit := func(j arbiter.JobID) *client {
		x := w.process(bob, "vllm")
		x.Unit = "vllm.service"
		return w.clientOf(x, j, 0)
	}
	j := run()
	c := inUnit(j.ID)
	c.must(6 * gib)
	if err := w.arb.Suspend(w.now, j.ID, nil); err != nil {
		t.Fatal(err)
	}
	errand := w.arb.Errands()[0]
	w.arb.CloseJob(w.now, j.ID)
	forget(w.arb, w.now, c.session)
	w.arb.ErrandDone(w.now, errand.ID, "")
	if r := w.residence(j.ID); r != arbiter.Suspended {
		t.Fatalf("it is %q", r)
	}
	if err := w.arb.Resume(w.now, j.ID, nil); err != nil {
		t.Fatal(err)
	}
	again := run()
	if r := w.residence(again.ID); r != arbiter.Resuming {
		t.Errorf("it is %q", r)
	}
	if _, _, known := w.arb.Residence(j.ID); known {
		t.Error("the old job is still there")
	}
	if o := w.client(0, 0).alloc(3 * gib); o.Waiting == 0 {
		t.Errorf("another job got memory that is reserved: %+v", o)
	}
	inUnit(again.ID).must(6 * gib)
	w.arb.ErrandDone(w.now, w.arb.Errands()[0].ID, "")
	w.errandsIn(time.Second)
	if r := w.residence(again.ID); r != arbiter.Resident {
		t.Errorf("it is %q", r)
	}
}
