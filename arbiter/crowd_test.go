package arbiter_test

import (
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// With hundreds of clients or waiting requests, changes of limits and frees take effect as with a few, and long searches for a deadlock
// neither miss one nor delay other calls. deadlock_test.go has deadlocks of few clients.

// TestWaitingRequestFollowsItsJob: a waiting request is decided when another process of its job changes what the job has. The process gives
// back part of the job's reservation, or its use leaves no room in the job's budget.
func TestWaitingRequestFollowsItsJob(t *testing.T) {
	begin := func(r arbiter.JobRequest) (w *world, one *client, ticket arbiter.TicketID) {
		w = newWorld(t, waiting(), 1000)
		job := w.job(t, r)
		one, two := w.client(job, 0), w.client(job, 0)
		one.must(250)
		two.must(50)
		first := w.client(0, 0)
		first.must(650)
		for range 60 {
			first.wait(200)
		}
		return w, one, two.wait(100)
	}
	w, one, ticket := begin(arbiter.JobRequest{Min: ptr(size(300))})
	one.free(100)
	w.pass(2 * time.Millisecond) // if many requests wait, the arbiter handles all frees of this time in one cycle
	w.served(ticket)
	w, one, ticket = begin(arbiter.JobRequest{Max: ptr(size(400))})
	one.word.told.Known = true
	for range 2 {
		w.reads(one.process.PID, 310)
		w.pass(time.Second)
	}
	w.refused(ticket, arbiter.ReasonOverBudget)
}

// TestAUsersLimitIsSetAgain: a limit of a user that is removed and set again at once is in force.
func TestAUsersLimitIsSetAgain(t *testing.T) {
	w := newWorld(t, exact(unlimited()), gib)
	limit := func(s accounting.Size) {
		if err := w.arb.SetUserLimits(w.now, 1000, "u", rules.Change{Device: rules.AllDevices, Max: &s}); err != nil {
			t.Fatal(err)
		}
	}
	var all []*client
	for range 300 {
		all = append(all, w.client(0, 0))
	}
	limit(size(10 * mib))
	w.pass(time.Second)
	limit(unlimited())
	limit(size(10 * mib))
	w.pass(time.Second)
	granted := 0
	for _, c := range all {
		if c.alloc(mib).Granted {
			granted++
		}
	}
	if granted != 10 {
		t.Errorf("of a limit of 10 MiB %d were granted", granted)
	}
}

// TestNewClientsBelowLimitReportFrees: while a request waits at a new limit of a user, all clients of the user report what they free. This
// includes clients that have asked for nothing since the limit was set.
func TestNewClientsBelowLimitReportFrees(t *testing.T) {
	w := newWorld(t, waiting(), 1000)
	late, holder, waits := w.client(0, 0), w.client(0, 0), w.client(0, 0)
	late.must(50)
	holder.must(40)
	for range 50 {
		w.client(0, 0)
	}
	if err := w.arb.SetUserLimits(w.now, 1000, "", rules.Change{Device: rules.AllDevices, Max: ptr(size(100))}); err != nil {
		t.Fatal(err)
	}
	holder.alloc(0) // holder asks after the change of the limit; late does not
	ticket := waits.wait(61)
	w.arb.Finish(w.now)
	holder.free(40)
	w.served()
	late.free(50)
	w.arb.Finish(w.now)
	w.served(ticket)
}

// TestNewClientsBelowLimitLeaveLessRoom: a waiting request is evaluated again when a new limit applies to its client and to clients that
// hold memory.
func TestNewClientsBelowLimitLeaveLessRoom(t *testing.T) {
	p := capped(3, rules.ScopeProcess)
	p.Defaults.OnFull = rules.OnFullWait
	for range 12 { // maps are iterated in random order
		w := newWorld(t, p, 1000)
		in := func(cgroup string) *client {
			process := w.process(bob, "x")
			process.Cgroup = cgroup
			return w.clientOf(process, 0, 0)
		}
		holder, other, waits, last := in("/box"), in("/"), in("/box"), in("/")
		holder.must(80)
		other.must(900)
		waits.wait(50) // it waits for bytes, and no later request gets the third slot
		ticket := last.streams(1).Waiting
		for range 50 {
			in("/box")
		}
		if err := w.arb.SetCgroupLimits(w.now, "/box", rules.Change{Device: rules.AllDevices, Max: ptr(size(100))}); err != nil {
			t.Fatal(err)
		}
		w.arb.Finish(w.now)
		w.served(ticket) // a request that waits for a cgroup's limit blocks none outside of the cgroup
	}
}

// TestAnyDeviceRequestIsNotOvertaken: a waiting job that may have any device gets the first one with room, before later requests there.
func TestAnyDeviceRequestIsNotOvertaken(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 100, 1000)
	first := w.job(t, arbiter.JobRequest{Devices: []int{0}, Claim: true, Min: ptr(size(90))})
	second := w.job(t, arbiter.JobRequest{Devices: []int{1}, Claim: true})
	for range 100 {
		w.client(second, 1).must(1)
	}
	late := w.client(0, 0)
	late.must(1) // so that the other device is evaluated too
	waits, err := w.arb.OpenJob(w.now, arbiter.JobRequest{Process: w.process(bob, "x"), Any: true, Min: ptr(size(60))})
	if err != nil || waits.Waiting == 0 {
		t.Fatalf("%+v, %v", waits, err)
	}
	w.arb.Observe(w.now, arbiter.Usage{Device: 1, Processes: []arbiter.ProcessUsage{{PID: 1, Bytes: 890}}}) // no room there
	w.arb.CloseJob(w.now, first)
	if late.alloc(99).Granted {
		t.Error("who came last was served before who waits")
	}
	w.arb.Finish(w.now)
	w.served(waits.Waiting)
}

// TestDeadlockOfManyClients: each of many clients holds one part of a full device and waits for two. The part of one client is not enough for
// another; the parts of two are.
func TestDeadlockOfManyClients(t *testing.T) {
	const n = 400
	for threads, grace := range map[int]time.Duration{1: 0, 0: rules.DefaultDeadlockGrace} {
		w := newWorld(t, waiting(), n)
		all := make([]*client, n)
		for i := range all {
			all[i] = w.clientOf(w.process(1000+uint32(i%2), "ffmpeg"), 0, 0).threaded(threads) // a user has half of the queue
			all[i].must(1)
		}
		refused := 0
		for _, c := range all {
			if c.alloc(2).Reason == arbiter.ReasonDeadlock {
				refused++
			}
		}
		w.pass(grace)
		for s := w.arb.Search(w.now); s != nil; s = w.arb.Search(w.now) {
			s.Run()
			w.now = w.now.Add(time.Second)
			w.arb.Settle(w.now, s)
			w.now = w.now.Add(time.Minute / 6)
		}
		for _, why := range w.decided() {
			if why == arbiter.ReasonDeadlock {
				refused++
			}
		}
		if refused != 2 {
			t.Errorf("%d threads: %d were refused, want 2", threads, refused)
		}
		if w.pass(time.Second); len(w.decided()) > 0 {
			t.Errorf("%d threads: those that are left do not wait for each other", threads)
		}
	}
}

// TestSearchWithoutLock: a search for a deadlock reads nothing that calls change meanwhile, and its result counts only if the deadlock
// still exists.
func TestSearchWithoutLock(t *testing.T) {
	for _, x := range []struct {
		name    string
		move    func(w *world, all []*client)
		refused bool
	}{
		{"nothing moves", func(*world, []*client) {}, true},
		{"another job comes", func(w *world, _ []*client) { w.client(0, 1).must(10) }, true},
		{"one frees", func(_ *world, all []*client) { all[3].free(1); all[4].free(1) }, false},
		{"a thread goes on", func(_ *world, all []*client) { all[3].threaded(2); all[4].threaded(2) }, false},
	} {
		const n = 100
		w := newWorld(t, waiting(), n, 1000)
		var all []*client
		for range n {
			all = append(all, w.client(0, 0).threaded(1))
			all[len(all)-1].must(1)
		}
		for _, c := range all {
			c.alloc(2)
		}
		s := w.arb.Search(w.now)
		ran := make(chan struct{})
		go func() {
			s.Run()
			close(ran)
		}()
		x.move(w, all)
		<-ran
		w.arb.Decisions()
		w.arb.Settle(w.now, s)
		refused := false
		for _, d := range w.arb.Decisions() {
			refused = refused || d.Reason == arbiter.ReasonDeadlock
		}
		if refused != x.refused {
			t.Errorf("%s: refused: %v", x.name, refused)
		}
		if due := w.arb.Due(); due.IsZero() {
			t.Errorf("%s: no other search is due", x.name)
		}
	}
}

// TestDeadlinesDoNotWaitForASearch: while a search runs without the lock, requests past their deadline are refused, and no other search is
// due.
func TestDeadlinesDoNotWaitForASearch(t *testing.T) {
	const n = 100
	p := waiting()
	p.Defaults.WaitTimeout = 5 * time.Second
	w := newWorld(t, p, n)
	var all []*client
	for range n {
		all = append(all, w.client(0, 0).threaded(1))
		all[len(all)-1].must(1)
	}
	for _, c := range all {
		c.alloc(2)
	}
	w.pass(time.Second) // the clients get their notices, which are then not due
	s := w.arb.Search(w.now)
	if due := w.arb.Due(); !due.After(w.now) || due.After(w.now.Add(4*time.Second)) || w.arb.Search(w.now) != nil {
		t.Errorf("due %v from now, while a search runs", due.Sub(w.now))
	}
	w.pass(4 * time.Second)
	if got := w.decided(); len(got) != n {
		t.Errorf("%d of %d requests were decided in time", len(got), n)
	}
	s.Run()
	w.arb.Settle(w.now, s)
	if got := w.decided(); len(got) > 0 {
		t.Errorf("decided by a search that came too late: %v", got)
	}
}

// TestSearchOncePerSecondWhileUnchanged: while nothing changes, a search without the lock is made once a second.
func TestSearchOncePerSecondWhileUnchanged(t *testing.T) {
	const n = 100
	w := newWorld(t, waiting(), 2*n)
	w.client(0, 0).must(n)
	var all []*client
	for range n {
		all = append(all, w.client(0, 0).threaded(1))
		all[len(all)-1].must(1)
	}
	for _, c := range all {
		c.alloc(2)
	}
	searches := 0
	for range 400 {
		w.pass(10 * time.Millisecond)
		if s := w.arb.Search(w.now); s != nil {
			s.Run()
			w.arb.Settle(w.now, s)
			searches++
		}
	}
	if searches < 3 || searches > 8 || len(w.decided()) > 0 {
		t.Errorf("%d searches in 4 s", searches)
	}
}

// reads applies a reading in which a process uses n bytes of device 0.
func (w *world) reads(pid int, n accounting.Bytes) {
	w.arb.Observe(w.now, arbiter.Usage{Device: 0, Processes: []arbiter.ProcessUsage{{PID: pid, Bytes: n}}})
}

// TestStrictAndLooseSearchesAlternate: a job with all threads waiting, and a change between any two searches, make a strict
// search due each time. The loose search, which finds a deadlock of jobs with other threads, is made nevertheless.
func TestStrictAndLooseSearchesAlternate(t *testing.T) {
	const n = 40
	w := newWorld(t, waiting(), n, 1000, 1000)
	all := make([]*client, n)
	for i := range all {
		all[i] = w.client(0, 0)
		all[i].must(1)
	}
	for _, c := range all {
		c.wait(2)
	}
	busy, blocked, moving := w.client(0, 1), w.client(0, 1).threaded(1), w.client(0, 2)
	busy.must(900)
	blocked.must(100)
	blocked.wait(100) // no deadlock: busy may free at any time
	moving.must(1)
	for range 30 {
		w.arb.Threads(w.now, moving.session, 2)
		w.arb.Threads(w.now, moving.session, 3)
		w.pass(time.Second)
		if s := w.arb.Search(w.now); s != nil {
			s.Run()
			w.arb.Settle(w.now, s)
		}
		for _, why := range w.decided() {
			if why == arbiter.ReasonDeadlock {
				return
			}
		}
	}
	t.Error("the deadlock stands for 30 s")
}
