package arbiter_test

import (
	"errors"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// These tests check which idle jobs are asked to make room for a waiting request, and that a job returns only when its memory is reserved
// for it. Whether a job is suspended depends on the memory that the job holds. It does not depend on the report of its hook.

// evicting returns a policy under which jobs that have been idle for ten seconds make room, by hooks, for requests that have waited for
// five.
func evicting() rules.Policy {
	p := exact(unlimited())
	p.Defaults.OnFull, p.Defaults.WaitTimeout = rules.OnFullWait, rules.NoTimeout
	p.Defaults.Evict = rules.Evict{How: rules.EvictByHook, IdleAfter: 10 * time.Second, MinResident: time.Minute, Return: rules.ReturnOnRoom,
		Suspend: rules.MakeCommand([]string{"/bin/suspend"}), Resume: rules.MakeCommand([]string{"/bin/resume"})}
	p.EvictAfter = 5 * time.Second
	return p
}

// errandsIn moves the clock forward by d, with one tick for each second, and returns the errands that the arbiter adds in this time.
func (w *world) errandsIn(d time.Duration) (all []arbiter.Errand) {
	for end := w.now.Add(d); w.now.Before(end); {
		w.now = w.now.Add(time.Second)
		w.arb.Snapshot(w.now) // the arbiter notes the clients' calls
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

// fill makes four clients at intervals of a second. Each client allocates 2 GiB. Together they fill a device of 8 GiB.
func fill(w *world) (all []*client) {
	for range 4 {
		c := w.client(0, 0)
		c.must(2 * gib)
		all = append(all, c)
		w.errandsIn(time.Second)
	}
	return all
}

// TestLeastRecentlyUsedMakesRoom: once the first request has waited for evict.after, only the job that was used least recently is asked.
// Its memory serves the request.
func TestLeastRecentlyUsedMakesRoom(t *testing.T) {
	w := newWorld(t, evicting(), 8*gib)
	all := fill(w)
	all[0].free(gib) // this job is used again, so that all[1] is the least recently used
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
		t.Errorf("a job is asked although no request waits: %+v", more)
	}
}

// TestOnlyTheNeededAreAsked: if a job that was used later makes enough room by itself, a small job that was used earlier is not asked.
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
		all[3].free(gib) // this job is never idle
		all[3].must(gib)
		if got := w.errandsIn(time.Second); got != nil {
			t.Fatalf("%+v", got)
		}
	}
}

// TestWhoIsNeverAsked: a job is not asked while its device reports that its process is busy, or while its client makes calls. Afterwards it
// is.
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

// TestHooksAreNotBelieved: a job that gives nothing back stays resident although its hook reports success. It is asked again after 30
// seconds, and then after times that double.
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

// TestTheWayBackIsReserved: a suspended job returns only when all the memory that it held can be reserved for it. No other job gets that
// memory while the job takes it, and the job's own allocations succeed at once.
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
	for range 8 { // another job frees its memory bit by bit, until the return has room
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

// TestReturnsOnUse: a job without a command to resume stays suspended until its programs allocate again. Nothing is reserved for it, and a
// user cannot resume it.
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
	c.free(gib / 2) // a job that frees more memory does not return
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

// TestUnitOutlivesItsProcesses: the job of a stopped unit stays after its last process. When a process starts in the unit again, all the
// memory that the job held is reserved for it.
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

// TestSuspendByHand: a user can suspend a job that is not idle, and gets an error for a job that cannot be suspended or resumed.
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
}
