package arbiter_test

import (
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// manyInACircle is a full device of which each of many clients, of so many threads, holds one
// part and waits for two: more than are searched for circles by the call that makes one.
func manyInACircle(t *testing.T, threads int) (w *world, tickets []arbiter.TicketID) {
	t.Helper()
	const n = 400
	w = newWorld(t, waiting(), accounting.Bytes(n))
	all := make([]*client, n)
	for i := range all {
		all[i] = w.client(0, 0).threaded(threads)
		all[i].must(1)
	}
	for _, c := range all {
		tickets = append(tickets, c.wait(2))
	}
	w.served()
	return w, tickets
}

// search makes the searches that are due; false: there was none.
func (w *world) search() (searched bool) {
	for s := w.arb.Search(w.now); s != nil; s = w.arb.Search(w.now) {
		searched = true
		w.run(s)
		w.arb.Settle(w.now, s)
	}
	return searched
}

// run copies the state and searches.
func (w *world) run(s *arbiter.Search) {
	for s.Copy(w.now) {
	}
	s.Run()
}

func TestACircleOfMany(t *testing.T) {
	for threads, grace := range map[int]time.Duration{1: 0, 0: rules.DefaultDeadlockGrace} {
		w, tickets := manyInACircle(t, threads)
		w.pass(grace)
		if due := w.arb.Due(); due.After(w.now) {
			t.Errorf("%d threads: a search is due in %v", threads, due.Sub(w.now))
		}
		w.search()
		// With what one has there is not enough for any other, with what two have there is.
		got, last := w.decided(), len(tickets)-1
		if len(got) != 2 || got[tickets[last]] != arbiter.ReasonDeadlock || got[tickets[last-1]] != arbiter.ReasonDeadlock {
			t.Errorf("%d threads: decided %v", threads, got)
		}
		if w.pass(time.Second); w.search() && len(w.decided()) > 0 {
			t.Errorf("%d threads: who is left does not wait for each other", threads)
		}
	}
}

// What was found counts only if nothing has changed since.
func TestASearchThatComesTooLate(t *testing.T) {
	w, tickets := manyInACircle(t, 1)
	s := w.arb.Search(w.now)
	w.run(s)
	w.arb.Cancel(w.now, tickets[len(tickets)-1], arbiter.ReasonCancelled)
	w.decided()
	w.arb.Settle(w.now, s)
	w.served()
	w.pass(time.Second)
	w.search()
	w.refused(tickets[len(tickets)-2], arbiter.ReasonDeadlock)
}

// Where something always changes, the search is made at once after some have come too late.
func TestSearchesThatComeTooLate(t *testing.T) {
	w, tickets := manyInACircle(t, 1)
	newcomer := w.client(0, 0)
	for range 10 {
		if s := w.arb.Search(w.now); s != nil {
			w.run(s)
			w.arb.Cancel(w.now, newcomer.wait(1), arbiter.ReasonCancelled)
			w.arb.Settle(w.now, s)
		}
		w.pass(time.Second)
	}
	if got := w.decided(); got[tickets[len(tickets)-1]] != arbiter.ReasonDeadlock {
		t.Errorf("the circle stands: %v", got)
	}
}

// A limit that is lowered ends the search that goes on, and one more is enough, however much others ask for meanwhile.
func TestALimitIsLoweredDuringASearch(t *testing.T) {
	w, tickets := manyInACircle(t, 1)
	w.arb.SearchInParts()
	capped := w.clientOf(w.process(eve, "capped"), 0, 0)
	other := w.client(0, 0)
	for range 100 { // which are refused one after the other when the limit is lowered
		capped.wait(3)
	}
	if s := w.arb.Search(w.now); s == nil || !s.Copy(w.now) {
		t.Fatal("there is no search that goes on")
	}
	if err := w.arb.SetUserLimits(w.now, eve, "eve", rules.Change{Device: 0, Max: ptr(size(2))}); err != nil {
		t.Fatal(err)
	}
	searches := map[*arbiter.Search]bool{}
	for range 3 * len(tickets) {
		w.now = w.now.Add(time.Millisecond)
		if s := w.arb.Search(w.now); s != nil {
			if searches[s] = true; !s.Copy(w.now) {
				s.Run()
				w.arb.Settle(w.now, s)
			}
		}
		other.streams(1)
		w.arb.Cancel(w.now, other.wait(1), arbiter.ReasonCancelled)
		other.streams(-1)
	}
	refused := 0
	for _, why := range w.decided() {
		if why == arbiter.ReasonTooLarge {
			refused++
		}
	}
	if knots := len(w.knots()); refused != 100 || len(searches) > 3 || knots == 0 {
		t.Errorf("%d were refused; %d searches found %d circles", refused, len(searches), knots)
	}
}

// inParts is a drive in which circles are searched for beside all else that goes on, on a copy that is
// made of one request at a time.
type inParts struct {
	*drive
	search *arbiter.Search
	ran    chan struct{} // nil: it is still copied
}

// part takes the search a part further, or begins one. False: there is none to be made.
func (p *inParts) part() bool {
	now := p.world.now
	switch {
	case p.search == nil:
		p.search = p.arb.Search(now)
		return p.search != nil
	case p.ran != nil:
		<-p.ran
		p.logf("a search is settled")
		p.arb.Settle(now, p.search)
		p.search, p.ran = nil, nil
	case !p.search.Copy(now):
		s, ran := p.search, make(chan struct{})
		p.ran = ran
		go func() {
			s.Run()
			close(ran)
		}()
	}
	p.settled(nil)
	return true
}

// move has somebody move who waits.
func (p *inParts) move() {
	t, ok := pickOf(p.drive, p.tickets)
	if !ok || t.lease == nil {
		return
	}
	switch p.rng.IntN(4) {
	case 0:
		p.unmakeOf(t.lease.session)
	case 1:
		p.setThreadsOf(t.lease.session, 4)
	default:
		p.freeOf(t.lease.session)
	}
}

// stand lets nobody move but with time, until nobody is decided any more: then no circle may be left.
func (p *inParts) stand() {
	for quiet := 0; quiet < 2; quiet++ {
		left := len(p.tickets)
		p.after(p.grace + time.Second)
		for p.part() {
		}
		if left != len(p.tickets) {
			quiet = -1
		}
	}
	for _, strict := range []bool{true, false} {
		if f, ok := p.untangle(strict, nil); ok {
			p.fail("nothing has moved for long, and ticket %d still waits in a circle", f.ticket.id)
		}
	}
}

// What others do while a search goes on leads to no refusal but of who is in a circle then, and no circle
// is left for long.
func TestSearchesInParts(t *testing.T) {
	circles := 0
	for seed := range uint64(100) {
		d := newDrive(t, seed, accounting.Bytes(5*(seed%2)))
		d.later, d.verbose, d.capped = true, true, seed%3 == 0
		d.arb.SearchInParts()
		p := &inParts{drive: d}
		for range 1500 {
			d.one()
			for range d.rng.IntN(6) {
				if p.part(); p.ran != nil && d.rng.IntN(2) == 0 {
					p.move()
				}
			}
			if d.rng.IntN(4) == 0 {
				d.after(time.Duration(d.rng.IntN(20)) * time.Millisecond)
			}
			if d.rng.IntN(64) == 0 {
				p.stand()
			}
		}
		d.finish()
		circles += d.circles
	}
	if circles < 100 {
		t.Errorf("too little was tried: %d circles", circles)
	}
}

// Who moves while a search goes on is in no circle that it found, though nobody is served by that.
func TestWhoMovesDuringASearch(t *testing.T) {
	type waiters struct {
		*world
		one, two, process, other *client
		ticket                   arbiter.TicketID
		job                      arbiter.JobID
	}
	for name, x := range map[string]struct {
		reserved, holds, wants accounting.Bytes // by the job of two; and by one, of what that leaves
		loose                  bool
		move                   func(waiters)
		refused                bool
	}{
		"nobody":          {0, 400, 400, false, func(waiters) {}, true},
		"somebody else":   {0, 400, 400, false, func(w waiters) { w.other.free(20); w.other.wait(500) }, true},
		"frees":           {0, 400, 400, false, func(w waiters) { w.two.free(200) }, false},
		"has a thread":    {0, 400, 400, false, func(w waiters) { w.two.threaded(2) }, false},
		"waits no longer": {0, 400, 400, false, func(w waiters) { w.arb.Cancel(w.now, w.ticket, arbiter.ReasonCancelled); w.decided() }, false},
		"gets a process": {0, 400, 400, false, func(w waiters) {
			if _, err := w.arb.OpenSession(w.now, arbiter.SessionRequest{Process: w.world.process(1000, "late"), Job: w.job}); err != nil {
				t.Error(err)
			}
		}, false},
		"nobody, loosely":        {0, 400, 400, true, func(waiters) {}, true},
		"loses a process":        {0, 400, 400, true, func(w waiters) { w.arb.EndSession(w.now, w.process.session) }, false},
		"uses less":              {0, 300, 300, false, func(w waiters) { w.reads(103, 200) }, false},
		"keeps what is reserved": {600, 200, 300, false, func(waiters) {}, true},
		"reserves less": {600, 200, 300, false, func(w waiters) {
			if err := w.arb.SetJobLimits(w.now, w.job, rules.Change{Device: 0, Min: ptr(size(0))}); err != nil {
				t.Error(err)
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := waiters{world: newWorld(t, waiting(), 1000)}
			w.arb.SearchInParts()
			w.job = w.world.job(t, arbiter.JobRequest{Min: ptr(size(x.reserved))})
			w.one, w.two, w.process, w.other = w.client(0, 0), w.client(w.job, 0), w.client(w.job, 0), w.client(0, 0)
			threads := 1
			if x.loose {
				threads = 0
			}
			w.one.threaded(threads).must(x.holds)
			w.two.threaded(threads).must(200)
			w.process.threaded(threads).must(200)
			w.other.must(200)
			if x.holds == 300 { // the rest is what two uses beyond its bytes
				w.reads(103, 300)
				w.reads(103, 300)
			}
			if !x.loose {
				w.process.wait(500)
			}
			w.one.wait(x.wants)
			w.ticket = w.two.wait(450)
			if x.loose {
				w.search()
				w.pass(rules.DefaultDeadlockGrace)
			}
			s := w.arb.Search(w.now)
			w.run(s)
			x.move(w)
			w.arb.Settle(w.now, s)
			if _, refused := w.decided()[w.ticket]; refused != x.refused {
				t.Errorf("refused: %v", refused)
			}
		})
	}
}

// reads has device 0 show what a process uses.
func (w *world) reads(pid int, n accounting.Bytes) {
	w.arb.Observe(w.now, arbiter.Usage{Device: 0, Processes: []arbiter.ProcessUsage{{PID: pid, Bytes: n}}})
}

// A limit that is raised while a search goes on has those go on whom it stopped.
func TestALimitMovesDuringASearch(t *testing.T) {
	p := waiting()
	p.Devices = []rules.DeviceRule{{Match: rules.DeviceMatch{Index: ptr(0)}, SlotsMax: 2}}
	for raised, refused := range map[int]bool{1: true, 2: false} {
		w := newWorld(t, p, 1000, 1000)
		w.arb.SearchInParts()
		one, busy, two := w.client(0, 0).threaded(1), w.client(0, 0), w.client(0, 1).threaded(1)
		one.contexts(1)
		busy.contexts(1)
		two.must(800)
		if err := w.arb.SetSlots(w.now, 0, 1, arbiter.Changer{}); err != nil {
			t.Fatal(err)
		}
		one.on(1).wait(500)
		b := two.on(0).contexts(1).Waiting
		s := w.arb.Search(w.now)
		w.run(s)
		if err := w.arb.SetSlots(w.now, 0, raised, arbiter.Changer{}); err != nil {
			t.Fatal(err)
		}
		w.arb.Settle(w.now, s)
		w.pass(time.Second)
		w.search()
		if _, decided := w.decided()[b]; decided != refused {
			t.Errorf("slots.max %d: refused: %v", raised, decided)
		}
	}
}
