package arbiter_test

import (
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// This file has regression tests: each repeats, in few steps, a mistake of the arbiter that random steps against the reference
// (queue_drive_test.go) or a model (invariants_test.go) once found.

// TestServedNewcomerCountsAsHolder: a job without memory that is served counts as a holder of memory at once. In the same admission cycle its
// next request blocks later requests of jobs that have not held memory for longer.
func TestServedNewcomerCountsAsHolder(t *testing.T) {
	w := newWorld(t, waiting(), 1000)
	holder, newcomer, running := w.client(0, 0), w.client(0, 0).threaded(2), w.client(0, 0).threaded(2)
	holder.must(850)
	running.must(50)
	first := newcomer.of(1).alloc(490).Waiting
	second := newcomer.of(2).alloc(480).Waiting
	third := running.of(1).alloc(450).Waiting
	holder.free(850)
	got := w.decided()
	if _, served := got[third]; served || got[first] != arbiter.ReasonNone || len(got) != 1 {
		t.Errorf("%v: %d comes after %d, of a job that runs now", got, third, second)
	}
}

// TestThreadReportsLastFree: memory of a thread may keep its slot while other threads of the process have contexts, so that its free
// must be reported.
func TestThreadReportsLastFree(t *testing.T) {
	w := newWorld(t, capped(2, rules.ScopeThread), 1000)
	c := w.client(0, 0)
	c.of(1).contexts(1)
	c.of(2).alloc(10)
	ticket := c.of(3).alloc(10).Waiting
	c.free(10)
	w.served(ticket)
}

// TestReleasedJobReportsLastFree: the processes of a released job go on to share its slot, and the last object returns it.
func TestReleasedJobReportsLastFree(t *testing.T) {
	w := newWorld(t, capped(1, rules.ScopeThread), 1000)
	info := w.mustClaim(arbiter.JobRequest{})
	c := w.client(info.ID, 0)
	c.of(1).streams(1)
	c.of(1).alloc(10)
	c.of(1).streams(-1)
	ticket := w.client(0, 0).of(1).contexts(1).Waiting
	w.arb.ReleaseJob(w.now, info.ID)
	w.served()
	c.free(10)
	w.served(ticket)
}

// TestDeadlockFormsWhenProcessEnds: the end of a running process can leave its job blocked, and so form a deadlock.
func TestDeadlockFormsWhenProcessEnds(t *testing.T) {
	w := newWorld(t, waiting(), 1000)
	job := w.job(t, arbiter.JobRequest{})
	one, beside, two := w.client(job, 0).threaded(1), w.client(job, 0).threaded(1), w.client(0, 0).threaded(1)
	one.must(400)
	two.must(400)
	one.wait(400)
	b := two.wait(400)
	w.served()
	w.arb.EndSession(w.now, beside.session)
	w.refused(b, arbiter.ReasonDeadlock)
}

// TestRequestForTwoDevicesBlocksNarrowly: a job that needs two devices waits at a budget on one of them. On the other device it blocks
// only requests of the same user.
func TestRequestForTwoDevicesBlocksNarrowly(t *testing.T) {
	p := waiting()
	p.Rules = []rules.Rule{{Match: rules.Match{User: "eve"}, Scope: ptr(rules.ScopeUser), Max: ptr(size(500))}}
	w := newWorld(t, p, 1000, 1000)
	eves := w.clientOf(w.process(1001, "a"), 0, 1)
	eves.must(300)
	job, err := w.arb.OpenJob(w.now, arbiter.JobRequest{Process: w.process(1001, "x"), Min: ptr(size(200))})
	if err != nil || job.Waiting != 0 {
		t.Fatalf("%+v, %v", job, err)
	}
	job, err = w.arb.OpenJob(w.now, arbiter.JobRequest{Process: w.process(1001, "x"), Min: ptr(size(200))})
	if err != nil || job.Waiting == 0 {
		t.Fatalf("%+v, %v", job, err)
	}
	w.client(0, 0).must(500) // bob's
	other := w.clientOf(w.process(1001, "b"), 0, 0)
	if o := other.alloc(50); o.Waiting == 0 {
		t.Errorf("it overtook the job: %+v", o)
	}
	forget(w.arb, w.now, eves.session)
	if got := w.decided(); len(got) != 2 {
		t.Errorf("%v", got)
	}
}

// TestOutOfTurnIsEvaluatedAgain: a request may be served before an earlier one that waits for its job, but not if a grant to another job
// has taken its room meanwhile. Then a smaller request of its job is served.
func TestOutOfTurnIsEvaluatedAgain(t *testing.T) {
	p := waiting()
	p.Rules = []rules.Rule{{Match: rules.Match{User: "eve"}, Scope: ptr(rules.ScopeUser), Max: ptr(size(600))}}
	w := newWorld(t, p, 1000)
	one, two := w.clientOf(w.process(1001, "a"), 0, 0).threaded(3), w.clientOf(w.process(1001, "b"), 0, 0).threaded(1)
	one.must(300)
	two.must(100)
	two.wait(250)
	one.of(1).alloc(150)
	small := one.of(2).alloc(50).Waiting
	w.client(0, 0).must(480) // bob's: of the device, 120 are left
	w.served()
	one.threaded(2)
	w.served(small)
}

// TestPreferenceComesBeforeConvenience: the first device in the order of preference is chosen even if idle credit or an unused slot must be
// recalled for it.
func TestPreferenceComesBeforeConvenience(t *testing.T) {
	w := newWorld(t, capped(1, ""), 1000, 1000)
	idle := w.client(0, 1)
	idle.must(900)
	idle.free(900) // the client sends no report
	got := w.mustClaim(arbiter.JobRequest{Devices: []int{1, 0}, Min: ptr(size(500))})
	if len(got.Devices) != 1 || got.Devices[0] != 1 {
		t.Errorf("%+v", got)
	}
}

// TestUnreportedFreeLosesSlot: after slots.max was lowered, a client that freed everything without a report has no slot any more. Its next
// request needs a free slot like that of any client.
func TestUnreportedFreeLosesSlot(t *testing.T) {
	w := newWorld(t, capped(2, ""), 1000)
	one, two := w.client(0, 0), w.client(0, 0)
	one.must(10)
	two.must(10)
	if err := w.arb.SetSlots(w.now, 0, 1); err != nil {
		t.Fatal(err)
	}
	one.free(10)
	two.free(10)
	one.must(10)
	if o := two.alloc(10); o.Waiting == 0 && o.Reason != arbiter.ReasonBusy {
		t.Errorf("%+v, and %d have a slot", o, w.holders())
	}
}

// TestJobDoesNotStartAfterSlotsMaxWasSet: if slots.max is set on a device while a job waits for another device, the job does not start where
// another job now has the sole use.
func TestJobDoesNotStartAfterSlotsMaxWasSet(t *testing.T) {
	p := exact(unlimited())
	p.Devices = []rules.DeviceRule{{Match: rules.DeviceMatch{Index: ptr(1)}, SlotsMax: 1}}
	w := newWorld(t, p, 1000, 1000)
	there := w.client(0, 1)
	there.contexts(1)
	late, err := w.arb.OpenJob(w.now, arbiter.JobRequest{Process: w.process(1000, "x")})
	if err != nil || late.Waiting == 0 {
		t.Fatalf("%+v, %v", late, err)
	}
	w.job(t, arbiter.JobRequest{Exclusive: true, Devices: []int{0}})
	if err := w.arb.SetSlots(w.now, 0, 2); err != nil {
		t.Fatal(err)
	}
	there.contexts(-1)
	w.served(late.Waiting)
	if d := w.arb.Snapshot(w.now).Devices[0]; d.SlotsCurrent != 1 {
		t.Errorf("%d have a slot of a device that one has alone", d.SlotsCurrent)
	}
}

// TestARefusalLeavesTheAskerItsIdleCredit: a client that has freed everything may be refused more. The idle credit stays in its word.
func TestARefusalLeavesTheAskerItsIdleCredit(t *testing.T) {
	for name, refused := range map[string]struct {
		uid   uint32
		bytes accounting.Bytes // requested bytes: one more than are left, including the idle credit of asker
		want  arbiter.Reason
	}{
		"the shared budget is full": {eve, 207, arbiter.ReasonSharedFull},
		"the device is full":        {bob, 707, arbiter.ReasonDeviceFull},
	} {
		t.Run(name, func(t *testing.T) {
			p := exact(unlimited())
			p.Rules = []rules.Rule{{Match: rules.Match{User: "eve"}, Scope: ptr(rules.ScopeUser), Max: ptr(size(500))}}
			w := newWorld(t, p, 1000)
			other, asker := w.clientOf(w.process(refused.uid, "other"), 0, 0), w.clientOf(w.process(refused.uid, "asker"), 0, 0)
			other.must(294)
			asker.must(1)
			asker.free(1)
			o := asker.alloc(refused.bytes)
			if o.Granted || o.Reason != refused.want || o.Remaining != refused.bytes-1 {
				t.Errorf("%+v", o)
			}
			if asker.word.granted != 1 || asker.word.idle() != 1 {
				t.Errorf("refused, and of one idle byte %d are left, %d granted", asker.word.idle(), asker.word.granted)
			}
			asker.must(refused.bytes - 1)
		})
	}
}

// TestWaitingClientReturnsUnusedSlot: a waiting client keeps no slot under which it has no object.
func TestWaitingClientReturnsUnusedSlot(t *testing.T) {
	w := newWorld(t, waiting(), 1000)
	other, asker := w.client(0, 0), w.client(0, 0)
	other.must(294)
	asker.must(1)
	asker.free(1)
	ticket := asker.wait(707)
	if got := w.holders(); got != 1 {
		t.Errorf("%d have a slot, and one of them has nothing in it", got)
	}
	other.free(294)
	w.served(ticket)
}

// TestWordsOpenAfterARecall: credit that a process freed without a report is recalled for another request. That brings the user of both
// below the limit, so that both words are open again.
func TestWordsOpenAfterARecall(t *testing.T) {
	w := newWorld(t, rules.Policy{}, 1000)
	one, other := w.client(0, 0), w.client(0, 0)
	one.must(35)
	limit := accounting.Size{Bytes: 10}
	if err := w.arb.SetUserLimits(w.now, 1000, "", rules.Change{Device: 0, Max: &limit}); err != nil {
		t.Fatal(err)
	}
	one.word.state.Add(30)
	other.must(3)
	for _, c := range []*client{one, other} {
		if row := c.row(); c.word.closed() || row.State == figures.StateOver {
			t.Errorf("closed: %v, %+v", c.word.closed(), row)
		}
	}
}
