package arbiter_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/figures"
)

// waitedFor lists the values of waitersFor's what: the limit at which its requests wait.
var waitedFor = []string{"bytes", "mixed", "slots", "shared", "full"}

// waitersFor makes n requests wait at a device, each of them of a process that has `each` such requests. It returns a client that is still
// granted memory, and one that holds most of the resource that is short: bytes of the device ("bytes"), bytes for requests of two
// priorities ("mixed"), slots ("slots"), a budget that a rule makes the processes share ("shared"), or bytes of the device for processes
// whose shared budget has room ("full").
func waitersFor(t testing.TB, what string, n, each int) (w *world, runs, holder *client) {
	p := exact(unlimited())
	p.Defaults.OnFull, p.Defaults.WaitTimeout = rules.OnFullWait, 1<<62
	waiters := rules.Rule{Match: rules.Match{User: "eve"}, OnFull: ptr(rules.OnFullWait)}
	wait, slots := func(c *client) { c.wait(500 * mib) }, 0
	switch what {
	case "mixed":
		waiters.Priority = ptr(1)
	case "slots":
		slots = 2
		wait = func(c *client) {
			if c.contexts(1).Waiting == 0 {
				t.Fatal("there is a slot left")
			}
		}
	case "shared":
		waiters.Scope, waiters.Max = ptr(rules.ScopeUser), ptr(size(100*mib))
		wait = func(c *client) { c.wait(80 * mib) }
	case "full":
		waiters.Scope, waiters.Max = ptr(rules.ScopeUser), ptr(size(gib))
	}
	p.Rules = []rules.Rule{waiters}
	p.Devices = []rules.DeviceRule{{Match: rules.DeviceMatch{Index: ptr(0)}, SlotsMax: slots}}
	w = newWorld(t, p, gib)
	holder, runs = w.clientOf(w.process(map[bool]uint32{false: bob, true: eve}[what == "shared"], "holder"), 0, 0), w.client(0, 0)
	held := gib - 100*mib
	if what == "shared" {
		held = 50 * mib
	}
	holder.must(held)
	runs.must(mib)
	var waiter *client
	for i := range n {
		if i%each == 0 {
			uid := map[bool]uint32{false: bob, true: eve}[what == "shared" || what == "full" || what == "mixed" && i%(2*each) == 0]
			waiter = w.clientOf(w.process(uid, "waiter"), 0, 0)
		}
		wait(waiter)
	}
	return w, runs, holder
}

// TestWaitersAreServedInTurnAtEachLimit checks that requests are served in order when the limit at which they wait has room, and when it is raised.
func TestWaitersAreServedInTurnAtEachLimit(t *testing.T) {
	for _, what := range waitedFor {
		const n = 20
		w, _, holder := waitersFor(t, what, n, 10)
		w.arb.Decisions()
		if what == "shared" {
			if err := w.arb.SetRuleLimits(w.now, w.arb.Snapshot(w.now).Rules[0].ID, rules.Change{Device: 0, Max: ptr(size(900 * mib))}); err != nil {
				t.Fatal(err)
			}
		} else {
			holder.free(holder.word.granted)
			if err := w.arb.SetSlots(w.now, 0, 0, arbiter.Changer{}); err != nil {
				t.Fatal(err)
			}
		}
		w.arb.Finish(w.now)
		served := 0
		var last arbiter.TicketID
		for _, d := range w.arb.Decisions() {
			if d.Outcome.Granted {
				if served++; what != "mixed" && d.Ticket < last {
					t.Errorf("%s: ticket %d is served after %d", what, d.Ticket, last)
				}
				last = d.Ticket
			}
		}
		want := map[string]int{"bytes": 2, "mixed": 2, "slots": n, "shared": int((900*mib - 50*mib) / (80 * mib)), "full": 2}[what]
		if served != want {
			t.Errorf("%s: %d are served, want %d", what, served, want)
		}
	}
}

// TestAWaiterIsJudgedByItsJob checks that a waiting request is decided when another process of its job changes what the job has: when the
// process gives back part of the job's reservation, and when its use leaves no room in the job's budget.
func TestAWaiterIsJudgedByItsJob(t *testing.T) {
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
	w.pass(2 * time.Millisecond) // when frees that were gathered are looked at
	w.served(ticket)
	w, one, ticket = begin(arbiter.JobRequest{Max: ptr(size(400))})
	one.word.told.Known = true
	for range 2 {
		w.reads(one.process.PID, 310)
		w.pass(time.Second)
	}
	w.refused(ticket, arbiter.ReasonOverBudget)
}

// TestAUsersLimitIsSetAgain checks that a user's limit that is taken off and set again at once holds.
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

// TestWhoComesUnderALimitSaysWhatItFrees checks that a program that comes under a limit at which a request already waits reports what it frees.
func TestWhoComesUnderALimitSaysWhatItFrees(t *testing.T) {
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
	holder.alloc(0) // is under it from here on, as is who waits
	ticket := waits.wait(61)
	w.arb.Finish(w.now)
	holder.free(40)
	w.served()
	late.free(50)
	w.arb.Finish(w.now)
	w.served(ticket)
}

// TestWhoComesUnderALimitLeavesOthersLess checks that a waiting request is judged again when programs that hold memory come under its limit.
func TestWhoComesUnderALimitLeavesOthersLess(t *testing.T) {
	p := capped(3, rules.ScopeProcess)
	p.Defaults.OnFull = rules.OnFullWait
	for range 12 { // jobs come under it in any order
		w := newWorld(t, p, 1000)
		in := func(cgroup string) *client {
			process := w.process(bob, "x")
			process.Cgroup = cgroup
			return w.clientOf(process, 0, 0)
		}
		holder, other, waits, last := in("/box"), in("/"), in("/box"), in("/")
		holder.must(80)
		other.must(900)
		waits.wait(50) // and has a slot set aside for it
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

// TestNobodyOvertakesWhoMayHaveAnyDevice checks that a waiting job that may have any device gets the first one with room, before later requests there.
func TestNobodyOvertakesWhoMayHaveAnyDevice(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 100, 1000)
	first := w.job(t, arbiter.JobRequest{Devices: []int{0}, Claim: true, Min: ptr(size(90))})
	second := w.job(t, arbiter.JobRequest{Devices: []int{1}, Claim: true})
	for range 100 {
		w.client(second, 1).must(1)
	}
	late := w.client(0, 0)
	late.must(1) // so that the other device is looked at too
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

// randomClients do what they like.
type randomClients struct {
	*world
	rng     *rand.Rand
	clients []*client
	thread  uint32
}

func (p *randomClients) one() {
	c := p.clients[p.rng.IntN(len(p.clients))]
	p.thread++
	ask := func(what arbiter.What, n accounting.Bytes, count int) {
		p.arb.Ask(p.now, arbiter.Request{Lease: c.lease, What: what, Bytes: n, Count: count, Thread: p.thread})
	}
	switch n := p.rng.IntN(20); {
	case n < 8:
		ask(arbiter.WantsBytes, accounting.Bytes(1+p.rng.IntN(40)), 0)
	case n < 10:
		ask(arbiter.WantsStreams, 0, 1)
	case n < 12 && p.row(c).Streams > 0:
		ask(arbiter.WantsStreams, 0, -1)
	case n < 16:
		if used := p.row(c).Granted - c.word.idle(); used > 0 {
			c.free(accounting.Bytes(1 + p.rng.IntN(int(used))))
		}
	case n < 17:
		_ = p.arb.SetSlots(p.now, 0, p.rng.IntN(4), arbiter.Changer{})
	case n < 18:
		limit := accounting.Size{Max: true}
		if p.rng.IntN(2) == 0 {
			limit = size(accounting.Bytes(30 + p.rng.IntN(80)))
		}
		_ = p.arb.SetUserLimits(p.now, []uint32{bob, eve}[p.rng.IntN(2)], "", rules.Change{Device: rules.AllDevices, Max: &limit})
	case n < 19:
		p.now = p.now.Add(time.Duration(p.rng.IntN(3000)) * time.Millisecond)
		p.arb.Tick(p.now)
	default:
		p.arb.EndSession(p.now, c.session)
		p.arb.Gone(p.now, c.session, 0)
		delete(p.words.all, c.lease)
		p.clients = append(p.clients[:0:0], p.clients...)
		for i := range p.clients {
			if p.clients[i] == c {
				p.clients[i] = p.comes()
			}
		}
	}
}

func (p *randomClients) row(c *client) (row figures.LeaseState) {
	for _, l := range p.arb.Snapshot(p.now).Leases {
		if l.PID == c.process.PID {
			return l
		}
	}
	return row
}

func (p *randomClients) comes() *client {
	return p.clientOf(p.process([]uint32{bob, eve}[p.rng.IntN(2)], "x"), 0, 0)
}

// TestNoTurnIsLost: after each call no request waits that could be served.
func TestNoTurnIsLost(t *testing.T) {
	waited := 0
	for seed := range uint64(150) {
		p := &randomClients{world: newWorld(t, waiting(), 150), rng: rand.New(rand.NewPCG(seed, 3))}
		for range 6 {
			p.clients = append(p.clients, p.comes())
		}
		for step := range 400 {
			p.one()
			if p.rng.IntN(20) > 0 {
				continue
			}
			p.arb.Finish(p.now)
			if due := p.arb.Due(); !due.IsZero() && due.Sub(p.now) <= 2*time.Millisecond { // frees that were gathered are looked at
				p.arb.Tick(due)
			}
			p.arb.Decisions()
			waited += len(p.arb.Snapshot(p.now).Queue)
			if p.arb.JudgeAll(p.now); len(p.decided()) > 0 {
				t.Fatalf("seed %d, step %d: somebody could have been served", seed, step)
			}
		}
	}
	if waited < 1000 {
		t.Errorf("too little was tried: %d waited", waited)
	}
}

// TestACircleOfMany: each of many clients holds one part of a full device and waits for two. With what one of them has there is not
// enough for another, with what two have there is.
func TestACircleOfMany(t *testing.T) {
	const n = 1000
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

// TestASearchBesideTheLock: a search for a deadlock reads nothing that calls change meanwhile, and what it found counts only if it still stands.
func TestASearchBesideTheLock(t *testing.T) {
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
			refused = refused || d.Outcome.Reason == arbiter.ReasonDeadlock
		}
		if refused != x.refused {
			t.Errorf("%s: refused: %v", x.name, refused)
		}
		if due := w.arb.Due(); due.IsZero() {
			t.Errorf("%s: no other search is due", x.name)
		}
	}
}

// TestDeadlinesDoNotWaitForASearch: while a search runs without the lock, requests whose time is over are refused, and no other search is due.
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
	w.pass(time.Second) // the clients are told how they stand
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

// TestSearchesRest: while nothing changes a search without the lock is made once a second.
func TestSearchesRest(t *testing.T) {
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

// reads tells the arbiter of a reading in which a process uses n bytes of device 0.
func (w *world) reads(pid int, n accounting.Bytes) {
	w.arb.Observe(w.now, arbiter.Usage{Device: 0, Processes: []arbiter.ProcessUsage{{PID: pid, Bytes: n}}})
}
