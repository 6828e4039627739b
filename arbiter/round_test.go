package arbiter_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// A call that concerns all who wait looks at some of them, and Tick at the others: all are served, in order,
// and nothing is due any more then.
func TestACallLooksAtSome(t *testing.T) {
	const n, most = 2000, 128
	for _, x := range []struct {
		name    string
		change  func(*world) error
		granted bool
	}{
		{"served", func(w *world) error { return w.arb.SetSlots(w.now, 0, 0, arbiter.Changer{}) }, true},
		{"refused", func(w *world) error { w.arb.LoseDevice(w.now, 0); return nil }, false},
	} {
		w, _, _ := waitersFor(t, "slots", n, 10)
		w.pass(0)
		w.arb.Decisions()
		if err := x.change(w); err != nil {
			t.Fatal(err)
		}
		decided, last, calls := 0, arbiter.TicketID(0), 0
		for more := true; more; calls++ {
			for _, d := range w.arb.Decisions() {
				if d.Kind != arbiter.DecisionDone {
					continue
				}
				if decided++; d.Ticket < last || d.Outcome.Granted != x.granted {
					t.Errorf("%s: %+v after ticket %d", x.name, d, last)
				}
				last = d.Ticket
			}
			if due := w.arb.Due(); w.arb.Unfinished() == due.IsZero() {
				t.Fatalf("%s: due %v, unfinished %v", x.name, due, w.arb.Unfinished())
			}
			before := w.arb.Looked()
			if more = w.arb.Unfinished(); more {
				w.arb.Tick(w.now)
			}
			if w.arb.Looked()-before > most {
				t.Errorf("%s: one call looked at %d", x.name, w.arb.Looked()-before)
			}
		}
		if decided != n || calls < n*8/most {
			t.Errorf("%s: %d of %d decided in %d calls", x.name, decided, n, calls)
		}
	}
}

// Requests that their job's own limit comes to refuse are refused by a few in each call: for each of them all of the job's leases are
// looked through for what lies idle.
func TestACallRefusesSome(t *testing.T) {
	const n, most = 300, 128 / 16
	w := newWorld(t, waiting(), n+100)
	job := w.job(t, arbiter.JobRequest{})
	holder := w.client(0, 0)
	holder.must(100)
	var all []*client
	for range n {
		c := w.client(job, 0)
		c.must(1)
		all = append(all, c)
	}
	for _, c := range all {
		c.wait(50)
	}
	if err := w.arb.SetJobLimits(w.now, job, rules.Change{Max: ptr(size(n + 10))}); err != nil {
		t.Fatal(err)
	}
	refused := 0
	for first := true; first || w.arb.Unfinished(); first = false {
		if !first {
			w.arb.Tick(w.now)
		}
		got := len(w.decided())
		if refused += got; got > most {
			t.Fatalf("%d were refused by one call", got)
		}
	}
	if refused != n {
		t.Errorf("%d of %d were refused", refused, n)
	}
}

// Who comes while those who wait are looked at stands behind all of them, also those not looked at yet.
func TestNobodyOvertakesARoundCutShort(t *testing.T) {
	w := newWorld(t, waiting(), 100)
	if err := w.arb.SetUserLimits(w.now, eve, "eve", rules.Change{Device: rules.AllDevices, Max: ptr(size(10))}); err != nil {
		t.Fatal(err)
	}
	holder, first, late := w.client(0, 0), w.client(0, 0), w.client(0, 0)
	holder.must(95)
	w.clientOf(w.process(eve, "x"), 0, 0).must(5)
	w.clientOf(w.process(eve, "x"), 0, 0).wait(6) // holds nobody else up
	second := first.wait(30)
	w.arb.LookAtOnce(1)
	holder.free(20)
	if !w.arb.Unfinished() {
		t.Fatal("one look was enough")
	}
	third := late.wait(10)
	w.arb.Finish(w.now)
	w.served()
	holder.free(20)
	w.arb.Finish(w.now)
	w.served(second, third)
}

// parts has clients do what they like while those who wait are looked at one or two at a time.
type parts struct {
	*world
	rng     *rand.Rand
	clients []*client
	thread  uint32
}

func (p *parts) one() {
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

func (p *parts) row(c *client) (row accounting.LeaseState) {
	for _, l := range p.arb.Snapshot(p.now).Leases {
		if l.PID == c.process.PID {
			return l
		}
	}
	return row
}

func (p *parts) comes() *client {
	return p.clientOf(p.process([]uint32{bob, eve}[p.rng.IntN(2)], "x"), 0, 0)
}

// However calls and rounds that are cut short come between each other, in the end nobody waits who could be served.
func TestNoTurnIsLostBetweenParts(t *testing.T) {
	waited := 0
	for seed := range uint64(150) {
		p := &parts{world: newWorld(t, waiting(), 150), rng: rand.New(rand.NewPCG(seed, 3))}
		for range 6 {
			p.clients = append(p.clients, p.comes())
		}
		p.arb.LookAtOnce(1 + int(seed)%3)
		for step := range 400 {
			p.one()
			if p.arb.Unfinished() && p.rng.IntN(3) == 0 {
				p.arb.Tick(p.now)
			}
			if p.rng.IntN(20) > 0 {
				continue
			}
			p.arb.Finish(p.now)
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

// A device that is lost with thousands of leases is emptied in parts. From the first on nobody is served there, and
// in the end nothing is held, by those that died meanwhile either; also where it is there again before that end.
func TestALostDeviceIsEmptiedInParts(t *testing.T) {
	for _, back := range []bool{false, true} {
		w := newWorld(t, exact(unlimited()), 1000, 1000)
		var clients []*client
		for range 20 {
			c := w.client(0, 0)
			c.must(10)
			c.streams(1)
			clients = append(clients, c)
		}
		w.arb.EndSession(w.now, clients[18].session)
		w.arb.LookAtOnce(8)
		w.arb.LoseDevice(w.now, 0)
		last := clients[19]
		if d := w.arb.Snapshot(w.now).Devices[0]; !w.arb.Unfinished() || d.Committed < 100 {
			t.Fatal("all were emptied at once")
		}
		if o := last.alloc(1); o.Reason != arbiter.ReasonDeviceLost {
			t.Errorf("not emptied yet: %+v", o)
		}
		for _, l := range w.arb.Snapshot(w.now).Leases {
			if l.State != accounting.StateLost {
				t.Errorf("%+v", l)
			}
		}
		last.on(1).must(1000)
		w.arb.EndSession(w.now, clients[17].session)
		if back {
			w.arb.AddDevice(w.now, rules.Device{Index: 0, Total: 1000})
			w.client(0, 0).must(1000)
			continue
		}
		w.arb.Finish(w.now)
		s := w.arb.Snapshot(w.now)
		if d := s.Devices[0]; d.Committed != 0 || d.SlotsCurrent != 0 || len(s.Leases) != 19 {
			t.Errorf("left: %+v, %d leases", d, len(s.Leases))
		}
	}
}

// Whoever was first in line is served by the call that leaves off: those who come before the next one goes on stand behind the
// others all the same.
func TestNobodyOvertakesThoseWhoAreNext(t *testing.T) {
	w := newWorld(t, waiting(), 100)
	holder, late := w.client(0, 0), w.client(0, 0)
	holder.must(100)
	for range 40 {
		w.client(0, 0).wait(1)
	}
	w.pass(time.Second)
	holder.free(30)
	if !w.arb.Unfinished() {
		t.Fatal("one call served all")
	}
	if late.alloc(5).Granted {
		t.Error("who came last was served before those who wait")
	}
}

// So do those who waited in the first place, when the first in line gives up after a round was at the next ones.
func TestNobodyOvertakesWhenTheFirstGivesUp(t *testing.T) {
	for ticks := range 16 {
		w := newWorld(t, waiting(), 100)
		w.client(0, 0).must(90)
		first := w.client(0, 0).wait(40)
		for range 10 {
			w.client(0, 0).wait(30)
		}
		last := w.client(0, 0).wait(5)
		w.pass(0)
		w.arb.Decisions()
		w.arb.LookAtOnce(1)
		_ = w.arb.SetSlots(w.now, 0, 0, arbiter.Changer{}) // all are looked at anew
		for range ticks {
			w.arb.Tick(w.now)
		}
		w.arb.Cancel(w.now, first, arbiter.ReasonCancelled)
		w.arb.Finish(w.now)
		for _, d := range w.arb.Decisions() {
			if d.Kind == arbiter.DecisionDone && d.Ticket == last {
				t.Errorf("after %d ticks the last is served before ten others", ticks)
			}
		}
	}
}

// However many wait, on however many devices, each hears once how he stands, and the arbiter does not go round for ever.
func TestNoticesOfManyOnSeveralDevices(t *testing.T) {
	for _, x := range []struct{ devices, each int }{{1, 200}, {2, 100}, {8, 20}} {
		p := waiting()
		p.Defaults.WaitTimeout = 1 << 62
		w := newWorld(t, p, slices.Repeat([]accounting.Bytes{gib}, x.devices)...)
		for d := range x.devices {
			w.client(0, d).must(gib)
			for range x.each {
				w.client(0, d).wait(500 * mib)
			}
		}
		ticks, notices := 0, 0
		for end := w.now.Add(5 * time.Second); w.now.Before(end) && ticks < 1000; ticks++ {
			if s := w.arb.Search(w.now); s != nil {
				for s.Copy(w.now) {
				}
				s.Run()
				w.arb.Settle(w.now, s)
			}
			w.arb.Tick(w.now)
			for _, d := range w.arb.Decisions() {
				if d.Kind == arbiter.DecisionNotice {
					notices++
				}
			}
			if due := w.arb.Due(); due.After(w.now) { // as the daemon's clock
				w.now = due
			} else {
				w.now = w.now.Add(time.Millisecond)
			}
		}
		if notices != x.devices*x.each || ticks == 1000 {
			t.Errorf("%d devices, %d wait at each: %d notices, %d ticks in 5 s", x.devices, x.each, notices, ticks)
		}
	}
}

// Who changes his limits all the time does not keep what was changed before from being put in force.
func TestChangesAreCarriedOutInTheirOrder(t *testing.T) {
	p := exact(unlimited())
	rule := func(n accounting.Bytes) []rules.Rule {
		return []rules.Rule{{Match: rules.Match{User: "bob"}, Max: ptr(size(n))}}
	}
	p.Rules = rule(500 * mib)
	w := newWorld(t, p, gib)
	for range 300 {
		w.clientOf(w.process(bob, "x"), 0, 0)
		w.clientOf(w.process(eve, "x"), 0, 0)
	}
	w.pass(time.Second)
	p.Rules = rule(100 * mib)
	w.arb.SetPolicy(w.now, p)
	for i := range 100 {
		change := rules.Change{Device: rules.AllDevices, UID: eve, Max: ptr(size(accounting.Bytes(900-i) * mib))}
		if err := w.arb.SetUserLimits(w.now, eve, "eve", change); err != nil {
			t.Fatal(err)
		}
		w.now = w.now.Add(100 * time.Microsecond)
		w.arb.Tick(w.now)
	}
	for _, l := range w.arb.Snapshot(w.now).Leases {
		if l.UID == bob && l.Budget > 100*mib {
			t.Fatalf("process %d may still hold %v", l.PID, l.Budget.Human())
		}
	}
}

// A user's limit that is taken off and set again while the first is being put in force is in force.
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
	if !w.arb.Unfinished() {
		t.Fatal("all was done at once")
	}
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

// A request that comes to wait for bytes and may not is decided when all that lies idle has been taken back, in however many steps.
func TestDecidedWhenWhatLiesIdleIsTakenBack(t *testing.T) {
	const n = 400
	for _, idle := range []accounting.Bytes{0, 1} {
		w := newWorld(t, capped(n, ""), 2*n+20)
		var all []*client
		for range n {
			c := w.client(0, 0)
			c.must(2)
			c.word.free(idle)
			all = append(all, c)
		}
		ticket := w.client(0, 0).wait(20) // for a slot: the bytes are there
		all[1].must(20)
		w.arb.LookAtOnce(8)
		w.arb.EndSession(w.now, all[0].session)
		w.arb.Gone(w.now, all[0].session, 0)
		if got := w.decided(); len(got) > 0 || !w.arb.Unfinished() {
			t.Fatalf("%d idle: decided %v, unfinished %v", idle, got, w.arb.Unfinished())
		}
		w.arb.Finish(w.now)
		if idle == 0 {
			w.refused(ticket, arbiter.ReasonDeviceFull)
		} else {
			w.served(ticket)
		}
	}
}

// A device that comes back does not have one call do for all programs what can be done in steps.
func TestADeviceThatComesBackIsSeenToInSteps(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 1000, 1000)
	for range 400 {
		w.client(0, 1)
	}
	w.arb.LoseDevice(w.now, 0)
	w.arb.Finish(w.now)
	w.arb.AddDevice(w.now, rules.Device{Index: 0, Total: 1000})
	if !w.arb.Unfinished() {
		t.Error("one call did all")
	}
}

// Who asks all the time how much memory there is does not keep what is done in steps from going on.
func TestQuestionsDoNotHoldUpWhatIsDoneInSteps(t *testing.T) {
	const n = 1000
	w := newWorld(t, exact(unlimited()), n, n)
	var last *client
	for range n {
		last = w.client(0, 0)
		last.on(1).must(1)
	}
	w.pass(time.Second)
	w.arb.LoseDevice(w.now, 0)
	for ticks := 0; w.arb.Unfinished(); ticks++ {
		if ticks > n {
			t.Fatalf("not done by %d ticks", ticks)
		}
		for range 2 {
			if _, err := w.arb.Query(w.now, last.session, 1); err != nil {
				t.Fatal(err)
			}
		}
		w.arb.Tick(w.now)
	}
}

// Who may have any device is served where there is room, however long it takes to see what lies idle at another.
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
	w.arb.LookAtOnce(4)
	w.arb.CloseJob(w.now, first)
	if late.alloc(99).Granted {
		t.Error("who came last was served before who waits")
	}
	w.arb.Finish(w.now)
	w.served(waits.Waiting)
}

// Who is found to wait for bytes stands in that line from then on, not only when what lies idle has been taken back.
func TestNobodyOvertakesWhoIsFoundToWaitForBytes(t *testing.T) {
	const n, others = 1500, 20
	p := capped(n+others+1, rules.ScopeProcess)
	p.Defaults.OnFull = rules.OnFullWait
	w := newWorld(t, p, 5000)
	if err := w.arb.SetUserLimits(w.now, eve, "eve", rules.Change{Device: rules.AllDevices, Max: ptr(size(others))}); err != nil {
		t.Fatal(err)
	}
	var eves, all []*client
	for range others {
		c := w.clientOf(w.process(eve, "x"), 0, 0)
		c.must(1)
		eves = append(eves, c)
	}
	for range n {
		c := w.client(0, 0)
		c.must(2)
		c.word.free(1)
		all = append(all, c)
	}
	job := w.job(t, arbiter.JobRequest{})
	w.client(job, 0).must(1) // who holds nothing sets nothing aside
	for _, c := range eves {
		c.wait(10) // for eve's limit: it holds up nobody else
	}
	first := w.client(job, 0).wait(100) // for a slot
	w.arb.Finish(w.now)
	w.arb.Observe(w.now, arbiter.Usage{Device: 0, Processes: []arbiter.ProcessUsage{{PID: 1, Bytes: 5000 - 2*n - others - 51}}})
	w.arb.EndSession(w.now, all[0].session) // there is a slot, and 50 bytes
	if got := w.decided(); len(got) > 0 || !w.arb.Unfinished() {
		t.Fatalf("decided %v, unfinished %v", got, w.arb.Unfinished())
	}
	late := all[1].wait(60)
	w.arb.Finish(w.now)
	w.served(first, late)
}

// Who changes a job's limit all the time leaves no more to be done than who did so twice.
func TestChangesOfOneLimitDoNotPileUp(t *testing.T) {
	const n = 1000
	w := newWorld(t, exact(unlimited()), 2*n)
	job := w.job(t, arbiter.JobRequest{})
	var all []*client
	for range n {
		all = append(all, w.client(job, 0))
	}
	most := accounting.Bytes(2 * n)
	for range 500 {
		most--
		if err := w.arb.SetJobLimits(w.now, job, rules.Change{Device: rules.AllDevices, Max: &accounting.Size{Bytes: most}}); err != nil {
			t.Fatal(err)
		}
	}
	ticks := 0
	for ; w.arb.Unfinished(); ticks++ {
		w.arb.Tick(w.now)
	}
	for _, c := range all {
		if c.word.limit != most {
			t.Fatalf("a program is told a limit of %d, and it is %d", c.word.limit, most)
		}
	}
	if ticks > 2*n/8/64 {
		t.Errorf("%d ticks", ticks)
	}
}

// Nor does a job of thousands of processes of which one asks and gives up all the time.
func TestRequestsThatAreCancelledDoNotPileUp(t *testing.T) {
	const n = 2000
	w := newWorld(t, waiting(), 2*n)
	job := w.job(t, arbiter.JobRequest{})
	var last *client
	for range n {
		last = w.client(job, 0)
		last.must(1)
	}
	for range 200 {
		w.arb.Cancel(w.now, last.wait(n+1), arbiter.ReasonCancelled)
	}
	ticks := 0
	for ; w.arb.Unfinished(); ticks++ {
		w.arb.Tick(w.now)
	}
	if ticks > 2*n/8/64 {
		t.Errorf("%d ticks", ticks)
	}
}

// A program that comes under a limit at which somebody waits already says from then on what it frees.
func TestWhoComesUnderALimitSaysWhatItFrees(t *testing.T) {
	w := newWorld(t, waiting(), 1000)
	late, holder, waits := w.client(0, 0), w.client(0, 0), w.client(0, 0)
	late.must(50)
	holder.must(40)
	for range 50 {
		w.client(0, 0)
	}
	w.arb.LookAtOnce(4)
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

// Who waits is judged anew when others come under a limit that is his too, with what they hold.
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
		w.arb.LookAtOnce(4)
		if err := w.arb.SetCgroupLimits(w.now, "/box", rules.Change{Device: rules.AllDevices, Max: ptr(size(100))}); err != nil {
			t.Fatal(err)
		}
		w.arb.Finish(w.now)
		w.served(ticket) // who waits for a cgroup's limit holds up nobody else
	}
}
