package arbiter_test

import (
	"math/rand/v2"
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
