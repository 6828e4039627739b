package arbiter_test

import (
	"slices"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// The pressure of a device, a job and a user counts the time during which requests wait for bytes there. Each schedule says itself which of
// its times count. This file also tests counts of requests. pressure_model_test.go compares random steps, and pressure/pressure_test.go
// tests the averages.

// scene is a device of 1000 bytes, a policy under which all jobs wait, and two programs of bob on the device.
type scene struct {
	*world
	t           *testing.T
	a, b        *client
	aJob, bJob  uint64
	pauses      int
	some, full  time.Duration // pressure of the device, by the script
	bSome, bAll time.Duration // pressure of b's job
}

func newScene(t *testing.T) *scene {
	s := &scene{world: newWorld(t, waiting(), 1000), t: t}
	s.a, s.b = s.client(0, 0), s.client(0, 0)
	s.aJob, s.bJob = s.jobOf(s.a), s.jobOf(s.b)
	return s
}

func (s *scene) jobOf(c *client) uint64 {
	for _, p := range s.arb.Snapshot(s.now).Processes {
		if p.PID == c.process.PID {
			return p.Job
		}
	}
	s.t.Fatalf("process %d has no job", c.process.PID)
	return 0
}

// span lets time pass in seven equal pauses, which are longer in each call. The arguments say which pressures must count this time.
func (s *scene) span(some, full, bSome, bFull bool) {
	s.pauses++
	for range 7 { // several calls of Tick
		pause := time.Duration(s.pauses*137+11) * time.Millisecond
		s.pass(pause)
		for held, total := range map[*time.Duration]bool{&s.some: some, &s.full: full, &s.bSome: bSome, &s.bAll: bFull} {
			if total {
				*held += pause
			}
		}
	}
	s.check()
}

func (s *scene) check() {
	s.t.Helper()
	snap := s.arb.Snapshot(s.now)
	totals := func(p figures.PressureState) [2]time.Duration {
		return [2]time.Duration{time.Duration(p.Some.TotalUs) * time.Microsecond, time.Duration(p.Full.TotalUs) * time.Microsecond}
	}
	if got, want := totals(snap.Devices[0].Pressure), [2]time.Duration{s.some, s.full}; got != want {
		s.t.Errorf("span %d: the device has %v, the script %v", s.pauses, got, want)
	}
	for _, j := range snap.Jobs {
		if j.ID == s.bJob {
			if got, want := totals(j.Pressure), [2]time.Duration{s.bSome, s.bAll}; got != want {
				s.t.Errorf("span %d: the job has %v, the script %v", s.pauses, got, want)
			}
		}
	}
	if i := slices.IndexFunc(snap.Users, func(u figures.UserState) bool { return u.UID == 1000 }); i < 0 {
		s.t.Error("the user is not there")
	} else if got, want := totals(snap.Users[i].Pressure), [2]time.Duration{s.some, s.full}; got != want {
		s.t.Errorf("span %d: the user of both has %v, the script %v", s.pauses, got, want)
	}
}

// threads sets how many threads a client's process reports.
func (c *client) threads(n int) { c.w.arb.Threads(c.w.now, c.session, n) }

// waitIn does the work of wait for a given thread.
func (c *client) waitIn(thread uint32, n accounting.Bytes) arbiter.TicketID {
	c.w.t.Helper()
	o := c.w.arb.Ask(c.w.now, arbiter.Request{Lease: c.lease, What: arbiter.WantsBytes, Bytes: n, Thread: thread})
	if o.Waiting == 0 {
		c.w.t.Fatalf("%d bytes do not wait: %+v", n, o)
	}
	return o.Waiting
}

// TestPressure plays schedules of waiting and running, and compares the totals with the script to the millisecond.
func TestPressure(t *testing.T) {
	for name, play := range map[string]func(s *scene){
		"one waits while the other runs": func(s *scene) {
			s.a.threads(1)
			s.b.threads(1)
			s.a.must(600)
			s.span(false, false, false, false)
			ticket := s.b.waitIn(1, 500)
			s.span(true, false, true, true)
			s.a.free(600)
			s.served(ticket)
			s.span(false, false, false, false)
		},
		"of two threads one waits, then both": func(s *scene) {
			s.a.threads(1)
			s.b.threads(2)
			s.a.must(600)
			first := s.b.waitIn(1, 500)
			s.span(true, false, true, false)
			second := s.b.waitIn(2, 450)
			s.span(true, false, true, true)
			s.b.threads(3)
			s.span(true, false, true, false)
			s.a.free(600)
			s.served(first, second)
			s.span(false, false, false, false)
		},
		"how many threads there are is not known": func(s *scene) {
			s.a.must(600)
			ticket := s.b.wait(500)
			s.span(true, false, true, false)
			s.b.threads(1)
			s.span(true, false, true, true)
			s.arb.Cancel(s.now, ticket, arbiter.ReasonCancelled)
			s.span(false, false, false, false)
		},
		"nobody runs: others hold what they do not use": func(s *scene) {
			s.a.threads(1)
			s.b.threads(1)
			s.figures(700)
			s.a.must(100)
			a, b := s.a.waitIn(1, 250), s.b.waitIn(1, 250)
			s.span(true, true, true, true)
			s.a.threads(2) // one of them was seen only now
			s.span(true, false, true, true)
			s.arb.EndSession(s.now, s.a.session)
			s.refused(a, arbiter.ReasonCancelled)
			s.span(true, true, true, true) // its memory is not back, and nothing of it runs
			s.arb.Gone(s.now, s.a.session, 0)
			s.served(b)
			s.span(false, false, false, false)
		},
		"a reservation waits": func(s *scene) {
			s.b.threads(1)
			s.a.must(600)
			info, err := s.arb.OpenJob(s.now, arbiter.JobRequest{Process: s.process(1000, "gpuarb"), Min: ptr(size(500))})
			if err != nil || info.Waiting == 0 {
				s.t.Fatalf("%+v, %v", info, err)
			}
			s.span(true, false, false, false)
			s.a.free(600)
			s.decided()
			s.span(false, false, false, false)
		},
		"a slot is waited for": func(s *scene) {
			if err := s.arb.SetSlots(s.now, 0, 1); err != nil {
				s.t.Fatal(err)
			}
			s.a.must(100)
			ticket := s.b.waitIn(1, 100)
			s.span(false, false, false, false)
			s.a.must(850) // now there is no room either, but what the queue shows is the slot
			s.span(false, false, false, false)
			s.arb.Cancel(s.now, ticket, arbiter.ReasonCancelled)
		},
		"refusals": func(s *scene) {
			s.a.must(600)
			for range 20 {
				if o := s.b.alloc(5000); o.Granted || o.Waiting != 0 {
					s.t.Fatalf("%+v", o)
				}
				if o := s.arb.Ask(s.now, arbiter.Request{Lease: s.b.lease, What: arbiter.WantsBytes, Bytes: 500, NoWait: true}); o.Reason != arbiter.ReasonBusy {
					s.t.Fatalf("%+v", o)
				}
			}
			s.span(false, false, false, false)
		},
		"the device is lost": func(s *scene) {
			s.b.threads(1)
			s.a.must(600)
			ticket := s.b.waitIn(1, 500)
			s.span(true, false, true, true)
			s.arb.LoseDevice(s.now, 0)
			s.refused(ticket, arbiter.ReasonDeviceLost)
			s.span(false, false, false, false)
		},
		"a wait ends in time": func(s *scene) {
			s.b.threads(1)
			s.a.must(600)
			ticket := s.b.waitIn(1, 500)
			s.pass(10 * time.Minute)
			s.refused(ticket, arbiter.ReasonTimeout)
			s.some, s.bSome, s.bAll = 10*time.Minute, 10*time.Minute, 10*time.Minute
			s.span(false, false, false, false)
		},
	} {
		t.Run(name, func(t *testing.T) { play(newScene(t)) })
	}
}

// figures lets a program without a lease use n bytes of the device.
func (s *scene) figures(n accounting.Bytes) {
	s.arb.Note(0)
	s.arb.Observe(s.now, arbiter.Usage{Device: 0, Processes: []arbiter.ProcessUsage{{PID: 1, Bytes: n}}})
}

// TestPressureOnTwoDevices: a request that waits on one device causes pressure only there.
func TestPressureOnTwoDevices(t *testing.T) {
	w := newWorld(t, waiting(), 1000, 1000)
	a := w.client(0, 0)
	b := a.on(1)
	holder := w.client(0, 0)
	holder.must(900)
	a.threads(1)
	b.must(10)
	a.wait(200)
	w.pass(3 * time.Second)
	s := w.arb.Snapshot(w.now)
	if got := s.Devices[0].Pressure.Some.TotalUs; got != 3e6 {
		t.Errorf("device 0: %d µs", got)
	}
	if got := s.Devices[1].Pressure; got != (figures.PressureState{}) {
		t.Errorf("device 1: %+v", got)
	}
	if got := s.Devices[0].Pressure.Some.Avg10; got != 18.11 { // one step of two seconds
		t.Errorf("avg10 is %v", got)
	}
}

// TestRestoredLeasesCount: a job with a restored lease that runs keeps the state full from holding, as any job does. A job whose device was
// lost does not.
func TestRestoredLeasesCount(t *testing.T) {
	w := newWorld(t, waiting(), 1000)
	w.restored(arbiter.SessionRequest{Process: w.process(1000, "x")}, arbiter.RestoredLease{Device: 0, Granted: 900})
	w.restored(arbiter.SessionRequest{Process: w.process(1000, "x")}, arbiter.RestoredLease{Device: 0, Lost: true})
	b := w.client(0, 0)
	b.threads(1)
	b.waitIn(1, 500)
	w.pass(time.Second)
	if got := w.arb.Snapshot(w.now).Devices[0].Pressure; got.Some.TotalUs != 1e6 || got.Full.TotalUs != 0 {
		t.Errorf("%+v", got)
	}
}

// TestCountsOfRequests: the counts have the outcomes of waiting requests by length of the wait, and refusals by reason, for all users and
// for each.
func TestCountsOfRequests(t *testing.T) {
	w := newWorld(t, waiting(), 1000)
	holder, c := w.client(0, 0), w.client(0, 0)
	other := w.clientOf(w.process(eve, "x"), 0, 0)
	holder.must(900)
	waits := []time.Duration{10 * time.Millisecond, 11 * time.Millisecond, 9 * time.Second}
	for _, span := range waits {
		ticket := c.wait(200)
		w.pass(span)
		holder.free(100)
		w.served(ticket)
		c.free(200)
		holder.must(100)
	}
	ticket := other.wait(200)
	w.pass(2 * time.Minute)
	w.arb.Cancel(w.now, ticket, arbiter.ReasonCancelled)
	other.alloc(5000)
	w.arb.Ask(w.now, arbiter.Request{Lease: other.lease, What: arbiter.WantsBytes, Bytes: 500, NoWait: true})
	if _, err := w.arb.OpenJob(w.now, arbiter.JobRequest{Process: w.process(eve, "gpuarb"), Min: ptr(size(5000))}); err == nil {
		t.Error("a reservation of more than there is")
	}
	s := w.arb.Snapshot(w.now)
	wait := func(c figures.RequestCounts, outcome string) figures.WaitCount {
		i := slices.IndexFunc(c.Waits, func(x figures.WaitCount) bool { return x.Outcome == outcome })
		return c.Waits[i]
	}
	refused := func(c figures.RequestCounts, why arbiter.Reason) uint64 {
		i := slices.IndexFunc(c.Refused, func(x figures.ReasonCount) bool { return x.Reason == why.String() })
		return c.Refused[i].Count
	}
	granted := figures.WaitCount{Outcome: "granted", Count: 3, SumMs: 9021, UpTo: []figures.ClassWait{{Ms: 10, Count: 1}, {Ms: 100, Count: 2},
		{Ms: 1000, Count: 2}, {Ms: 10_000, Count: 3}, {Ms: 60_000, Count: 3}, {Ms: 600_000, Count: 3}}}
	if got := wait(s.Counts, "granted"); !slices.Equal(got.UpTo, granted.UpTo) || got.Count != 3 || got.SumMs != 9021 {
		t.Errorf("granted: %+v, want %+v", got, granted)
	}
	if got := wait(s.Counts, "cancelled"); got.Count != 1 || got.SumMs != 120_000 || got.UpTo[4].Count != 0 || got.UpTo[5].Count != 1 {
		t.Errorf("cancelled: %+v", got)
	}
	if refused(s.Counts, arbiter.ReasonTooLarge) != 2 || refused(s.Counts, arbiter.ReasonBusy) != 1 || refused(s.Counts, arbiter.ReasonCancelled) != 1 {
		t.Errorf("refused: %+v", s.Counts.Refused)
	}
	for _, u := range s.Users {
		his := u.UID == eve
		if (wait(u.Counts, "granted").Count == 3) == his || (wait(u.Counts, "cancelled").Count == 1) != his || (refused(u.Counts, arbiter.ReasonTooLarge) == 2) != his {
			t.Errorf("user %d: %+v", u.UID, u.Counts)
		}
	}
}

// TestUsersAreForgotten: only the last 64 users without a job are remembered. Users with a limit are always shown.
func TestUsersAreForgotten(t *testing.T) {
	w := newWorld(t, waiting(), 1000)
	stays := w.clientOf(w.process(5000, "x"), 0, 0)
	if err := w.arb.SetUserLimits(w.now, 4000, "max", rules.Change{Device: rules.AllDevices, Max: ptr(size(100)), Privileged: true}); err != nil {
		t.Fatal(err)
	}
	for uid := range uint32(100) {
		c := w.clientOf(w.process(10_000+uid, "x"), 0, 0)
		forget(w.arb, w.now, c.session)
	}
	users := w.arb.Snapshot(w.now).Users
	if len(users) != 66 || users[0].UID != 4000 || users[0].Max != 100 || users[1].UID != 5000 || users[2].UID != 10_036 || users[65].UID != 10_099 {
		t.Errorf("%d users, from %+v", len(users), users[:3])
	}
	stays.must(70)
	if got := w.arb.Snapshot(w.now).Users[1]; got.Used != 70 || got.Max != accounting.Max {
		t.Errorf("%+v", got)
	}
}
