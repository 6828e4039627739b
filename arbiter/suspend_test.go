package arbiter_test

import (
	"errors"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// These tests hold which idle jobs are asked to make room for a waiting request, that what they gave back is judged by what they hold, and that
// they return only to memory that is reserved for them.

// evicting returns a policy under which jobs that are idle for ten seconds make room for requests that have waited for five.
func evicting() rules.Policy {
	p := exact(unlimited())
	p.Defaults.OnFull, p.Defaults.WaitTimeout = rules.OnFullWait, rules.NoTimeout
	p.Defaults.Evict = rules.Evict{How: rules.EvictByHook, IdleAfter: 10 * time.Second, MinResident: time.Minute, Return: rules.ReturnOnRoom,
		Suspend: rules.MakeCommand([]string{"/bin/suspend"}), Resume: rules.MakeCommand([]string{"/bin/resume"})}
	p.EvictAfter = 5 * time.Second
	return p
}

// errandsIn lets time pass second by second, and returns the errands that it brings.
func (w *world) errandsIn(d time.Duration) (all []arbiter.Errand) {
	for end := w.now.Add(d); w.now.Before(end); {
		w.now = w.now.Add(time.Second)
		w.arb.Snapshot(w.now) // notes calls
		w.arb.Tick(w.now)
		all = append(all, w.arb.Errands()...)
	}
	return all
}

// jobOf returns the job of a client.
func (c *client) jobOf() arbiter.JobID {
	for _, l := range c.w.arb.Snapshot(c.w.now).Leases {
		if l.PID == c.process.PID {
			return arbiter.JobID(l.Job)
		}
	}
	c.w.t.Fatal("no lease")
	return 0
}

// residence returns the residence of a client's job.
func (w *world) residence(j arbiter.JobID) arbiter.Residence {
	r, _, _ := w.arb.Residence(j)
	return r
}

// fill makes four clients with 2 GiB each, which fill a device of 8 GiB, and used it one second after the other.
func fill(w *world) (all []*client) {
	for range 4 {
		c := w.client(0, 0)
		c.must(2 * gib)
		all = append(all, c)
		w.errandsIn(time.Second)
	}
	return all
}

// TestLeastRecentlyUsedMakesRoom: the job that was used least recently is asked, once the first request has waited for evict.after, and no
// other one. Its memory serves the request.
func TestLeastRecentlyUsedMakesRoom(t *testing.T) {
	w := newWorld(t, evicting(), 8*gib)
	all := fill(w)
	all[0].free(gib) // it is used again
	all[0].must(gib)
	w.errandsIn(20 * time.Second)
	waiter := w.client(0, 0)
	if o := waiter.alloc(2 * gib); o.Waiting == 0 {
		t.Fatalf("%+v", o)
	}
	if got := w.errandsIn(4 * time.Second); got != nil {
		t.Errorf("before evict.after: %+v", got)
	}
	got := w.errandsIn(time.Second)
	if len(got) != 1 || got[0].Job != all[1].jobOf() || got[0].Resume || got[0].Wanted != 2*gib || got[0].Device != 0 || len(got[0].PIDs) != 1 {
		t.Fatalf("%+v", got)
	}
	all[1].free(2 * gib)
	w.arb.ErrandDone(w.now, got[0].ID, "")
	if r := w.residence(got[0].Job); r != arbiter.Suspended {
		t.Errorf("it is %q", r)
	}
	w.errandsIn(time.Second)
	if n := w.arb.Snapshot(w.now).Queue; len(n) != 0 {
		t.Errorf("%+v waits still", n)
	}
	if more := w.errandsIn(time.Minute); more != nil {
		t.Errorf("somebody is disturbed in vain: %+v", more)
	}
}

// TestOnlyTheNeededAreAsked: jobs are added in the order of their last use until they suffice, and those that are then not needed stay.
func TestOnlyTheNeededAreAsked(t *testing.T) {
	w := newWorld(t, evicting(), 8*gib)
	small, large := w.client(0, 0), w.client(0, 0)
	small.must(gib)
	w.errandsIn(time.Second)
	large.must(5 * gib)
	w.errandsIn(20 * time.Second)
	waiter := w.client(0, 0)
	if o := waiter.alloc(6 * gib); o.Waiting == 0 {
		t.Fatalf("%+v", o)
	}
	if got := w.errandsIn(5 * time.Second); len(got) != 1 || got[0].Job != large.jobOf() {
		t.Errorf("%+v", got)
	}
}

// TestNobodyIsDisturbedInVain: if all idle jobs together do not make enough room, none is asked.
func TestNobodyIsDisturbedInVain(t *testing.T) {
	w := newWorld(t, evicting(), 8*gib)
	all := fill(w)
	w.errandsIn(20 * time.Second)
	waiter := w.client(0, 0)
	if o := waiter.alloc(7 * gib); o.Waiting == 0 {
		t.Fatalf("%+v", o)
	}
	for range 60 {
		all[3].free(gib) // it works, and is never idle
		all[3].must(gib)
		if got := w.errandsIn(time.Second); got != nil {
			t.Fatalf("%+v", got)
		}
	}
}

// TestWhoIsNeverAsked: a job with a request in the queue, a busy device, a higher priority, a reservation, a claim, or a recent return stays.
func TestWhoIsNeverAsked(t *testing.T) {
	for name, prepare := range map[string]func(w *world, c *client){
		"utilisation": func(w *world, c *client) {
			w.arb.Observe(w.now, arbiter.Usage{Device: 0, Processes: []arbiter.ProcessUsage{{PID: c.process.PID, StartTicks: c.process.StartTicks, Bytes: 6 * gib}},
				Utilisation: map[int]int{c.process.PID: 1}})
		},
		"a call": func(w *world, c *client) { c.word.called = true },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, evicting(), 8*gib)
			c := w.client(0, 0)
			c.must(6 * gib)
			w.errandsIn(20 * time.Second)
			if o := w.client(0, 0).alloc(4 * gib); o.Waiting == 0 {
				t.Fatalf("%+v", o)
			}
			for range 30 {
				prepare(w, c)
				if got := w.errandsIn(time.Second); got != nil {
					t.Fatalf("%+v", got)
				}
			}
			got := w.errandsIn(11 * time.Second)
			if name == "utilisation" {
				if got != nil {
					t.Errorf("asked before the device has told that it is idle: %+v", got)
				}
				w.arb.Observe(w.now, arbiter.Usage{Device: 0, Processes: []arbiter.ProcessUsage{{PID: c.process.PID, StartTicks: c.process.StartTicks, Bytes: 6 * gib}},
					Utilisation: map[int]int{}})
				got = w.errandsIn(time.Second)
			}
			if len(got) != 1 {
				t.Errorf("idle, and not asked: %+v", got)
			}
		})
	}
}

// TestHooksAreNotBelieved: a job whose hook ends well and that gives nothing stays as it was, and is asked again after a time that doubles.
func TestHooksAreNotBelieved(t *testing.T) {
	w := newWorld(t, evicting(), 8*gib)
	liar := w.client(0, 0)
	liar.must(6 * gib)
	w.errandsIn(20 * time.Second)
	if o := w.client(0, 0).alloc(4 * gib); o.Waiting == 0 {
		t.Fatalf("%+v", o)
	}
	var at []time.Duration
	for begin := w.now; w.now.Sub(begin) < 5*time.Minute; {
		for _, e := range w.errandsIn(time.Second) {
			at = append(at, w.now.Sub(begin))
			w.arb.ErrandDone(w.now, e.ID, "")
		}
	}
	if len(at) != 4 || at[0] != 5*time.Second {
		t.Fatalf("asked after %v", at)
	}
	for i, wait := range []time.Duration{30, 60, 120} {
		if d := at[i+1] - at[i]; d < wait*time.Second || d > wait*time.Second+4*time.Second {
			t.Errorf("asked again after %v", d)
		}
	}
	if r := w.residence(liar.jobOf()); r != arbiter.Resident {
		t.Errorf("it is %q", r)
	}
}

// TestTheWayBackIsReserved: a suspended job returns only when all that it held is reserved for it. Nobody else gets that memory while it takes
// it, and its own allocations neither wait nor fail.
func TestTheWayBackIsReserved(t *testing.T) {
	w := newWorld(t, evicting(), 8*gib)
	c := w.client(0, 0)
	c.must(6 * gib)
	w.errandsIn(20 * time.Second)
	other := w.client(0, 0)
	if o := other.alloc(4 * gib); o.Waiting == 0 {
		t.Fatalf("%+v", o)
	}
	errand := w.errandsIn(5 * time.Second)[0]
	job := errand.Job
	c.free(5 * gib) // and keeps a part
	w.arb.ErrandDone(w.now, errand.ID, "")
	if got := w.errandsIn(3 * time.Second); w.residence(job) != arbiter.Suspended || got != nil {
		t.Fatalf("%q, %+v", w.residence(job), got)
	}
	if err := w.arb.Resume(w.now, job, nil); err != nil {
		t.Fatal(err)
	}
	q := w.arb.Snapshot(w.now).Queue
	if len(q) != 1 || q[0].WantsBytes != 6*gib || w.residence(job) != arbiter.Suspended {
		t.Fatalf("the way back: %+v", q)
	}
	var got []arbiter.Errand
	for range 8 { // another job comes and goes: the suspended one waits in order, and is not passed
		other.free(gib / 2)
		got = append(got, w.errandsIn(time.Second)...)
	}
	if w.residence(job) != arbiter.Resuming {
		t.Fatalf("%q, %+v", w.residence(job), got)
	}
	if o := w.client(0, 0).alloc(3 * gib); o.Waiting == 0 {
		t.Errorf("another job got memory that is reserved: %+v", o)
	}
	c.must(5 * gib)
	w.arb.ErrandDone(w.now, got[0].ID, "")
	if w.residence(job) != arbiter.Resident {
		t.Errorf("it is %q", w.residence(job))
	}
	if got := w.errandsIn(59 * time.Second); got != nil {
		t.Errorf("asked within min_resident: %+v", got)
	}
	if got := w.errandsIn(2 * time.Second); len(got) != 1 || got[0].Job != job {
		t.Errorf("not asked after min_resident: %+v", got)
	}
}

// TestReturnsWhenThereIsRoom: with evict.return "room" a job returns when no request waits and everything that it held fits.
func TestReturnsWhenThereIsRoom(t *testing.T) {
	w := newWorld(t, evicting(), 8*gib)
	c := w.client(0, 0)
	c.must(6 * gib)
	w.errandsIn(20 * time.Second)
	other := w.client(0, 0)
	other.alloc(4 * gib)
	errand := w.errandsIn(5 * time.Second)[0]
	job := errand.Job
	c.free(6 * gib)
	w.arb.ErrandDone(w.now, errand.ID, "")
	other.free(gib)
	if got := w.errandsIn(10 * time.Second); got != nil {
		t.Fatalf("without room: %+v", got)
	}
	other.free(gib)
	got := w.errandsIn(time.Second)
	if len(got) != 1 || got[0].Job != job || !got[0].Resume {
		t.Fatalf("%+v", got)
	}
	w.arb.ErrandDone(w.now, got[0].ID, "exit status 7")
	if w.residence(job) != arbiter.Stuck {
		t.Errorf("it is %q", w.residence(job))
	}
	if o := w.client(0, 0).alloc(gib); o.Waiting == 0 {
		t.Errorf("the memory of a stuck job is not reserved: %+v", o)
	}
	if err := w.arb.Resume(w.now, job, nil); err != nil || len(w.arb.Errands()) != 1 {
		t.Errorf("a person decides: %v", err)
	}
}

// TestReturnsOnUse: a job whose programs take memory again without being asked is suspended until they begin to. Nothing is reserved for it, and
// gpuarb resume says so.
func TestReturnsOnUse(t *testing.T) {
	p := evicting()
	p.Defaults.Evict.Resume, p.Defaults.Evict.Return = "", ""
	w := newWorld(t, p, 8*gib)
	c, other := w.client(0, 0), w.client(0, 0)
	c.must(6 * gib)
	job := c.jobOf()
	w.errandsIn(20 * time.Second)
	other.alloc(4 * gib)
	errand := w.errandsIn(5 * time.Second)[0]
	c.free(5 * gib)
	w.arb.ErrandDone(w.now, errand.ID, "")
	w.errandsIn(3 * time.Second)
	c.free(gib / 2) // its program goes on giving
	other.free(4 * gib)
	if got := w.errandsIn(10 * time.Second); w.residence(job) != arbiter.Suspended || got != nil {
		t.Fatalf("not used, and %q: %+v", w.residence(job), got)
	}
	if err := w.arb.Resume(w.now, job, nil); !errors.Is(err, rules.ErrRange) {
		t.Errorf("without a command: %v", err)
	}
	other.must(7 * gib)
	other.free(7 * gib)
	c.must(gib / 4)
	if w.errandsIn(time.Second); w.residence(job) != arbiter.Resident {
		t.Errorf("used, and %q", w.residence(job))
	}
	other.alloc(8 * gib)
	if got := w.errandsIn(58 * time.Second); got != nil {
		t.Errorf("asked within min_resident: %+v", got)
	}
	if got := w.errandsIn(3 * time.Second); len(got) != 1 || got[0].Job != job {
		t.Errorf("not asked after min_resident: %+v", got)
	}
}

// TestUnitOutlivesItsProcesses: the job of a unit that was stopped stays, and who starts in the unit again finds its memory reserved.
func TestUnitOutlivesItsProcesses(t *testing.T) {
	p := evicting()
	p.Defaults.Evict.How, p.Defaults.Evict.Return = rules.EvictByUnit, rules.ReturnOnUse
	w := newWorld(t, p, 8*gib)
	inUnit := func() *client {
		x := w.process(bob, "vllm")
		x.Unit = "vllm.service"
		return w.clientOf(x, 0, 0)
	}
	c := inUnit()
	c.must(6 * gib)
	w.errandsIn(20 * time.Second)
	other := w.client(0, 0)
	other.alloc(4 * gib)
	errand := w.errandsIn(5 * time.Second)[0]
	job := errand.Job
	w.arb.EndSession(w.now, c.session)
	w.arb.ErrandDone(w.now, errand.ID, "")
	if w.residence(job) != arbiter.Suspending {
		t.Errorf("the device has its memory still, and it is %q", w.residence(job))
	}
	w.arb.Gone(w.now, c.session, 0)
	if w.residence(job) != arbiter.Suspended {
		w.errandsIn(time.Second)
	}
	if r, gave, _ := w.arb.Residence(job); r != arbiter.Suspended || gave != 6*gib {
		t.Fatalf("%q, %d", r, gave)
	}
	other.free(4 * gib)
	if got := w.errandsIn(5 * time.Second); got != nil {
		t.Fatalf("it returns on use: %+v", got)
	}
	again := inUnit()
	if o := w.client(0, 0).alloc(3 * gib); o.Waiting == 0 {
		t.Errorf("another job got memory that is reserved: %+v", o)
	}
	again.must(6 * gib)
}

// TestSuspendByHand: a person can suspend a busy job, and learns why another one cannot be.
func TestSuspendByHand(t *testing.T) {
	w := newWorld(t, evicting(), 8*gib)
	c := w.client(0, 0)
	job := c.jobOf()
	if err := w.arb.Suspend(w.now, job, nil); !errors.Is(err, rules.ErrRange) {
		t.Errorf("a job that holds nothing: %v", err)
	}
	c.must(gib)
	if err := w.arb.Suspend(w.now, 99, nil); !errors.Is(err, arbiter.ErrNoJob) {
		t.Errorf("an unknown job: %v", err)
	}
	if err := w.arb.Resume(w.now, job, nil); !errors.Is(err, rules.ErrRange) {
		t.Errorf("a resident job: %v", err)
	}
	if err := w.arb.Suspend(w.now, job, nil); err != nil || len(w.arb.Errands()) != 1 {
		t.Errorf("%v", err)
	}
	if err := w.arb.Suspend(w.now, job, nil); !errors.Is(err, rules.ErrRange) {
		t.Errorf("a second time: %v", err)
	}
	reserved, err := w.arb.OpenJob(w.now, arbiter.JobRequest{Process: w.process(1000, "gpuarb"), Min: ptr(size(gib))})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.arb.Suspend(w.now, reserved.ID, nil); !errors.Is(err, rules.ErrRange) {
		t.Errorf("a job with a reservation: %v", err)
	}
	var _ accounting.Bytes
}
