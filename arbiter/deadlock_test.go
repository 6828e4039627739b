package arbiter_test

import (
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// threaded tells how many threads of a client make calls.
func (c *client) threaded(n int) *client {
	c.w.arb.Threads(c.w.now, c.session, n)
	return c
}

// knots are the events that tell of broken circles.
func (w *world) knots() (texts []string) {
	for _, e := range w.arb.Events() {
		if e.Kind == arbiter.EventDeadlock {
			texts = append(texts, e.Text)
		}
	}
	return texts
}

func TestF4OnOneDevice(t *testing.T) {
	w := newWorld(t, waiting(), 1000)
	one, two := w.client(0, 0).threaded(1), w.client(0, 0).threaded(1)
	one.must(400)
	two.must(400)
	a := one.wait(400)
	o := two.alloc(400)
	if o.Reason != arbiter.ReasonDeadlock || o.Waiting != 0 {
		t.Fatalf("the youngest is refused at once: %+v", o)
	}
	knots := w.knots()
	for _, want := range []string{"ffmpeg[101] holds 400 bytes on GPU 0 and wants 400 bytes on GPU 0", "ffmpeg[102]"} {
		if len(knots) != 1 || !strings.Contains(knots[0], want) || !strings.Contains(o.Explain, want) {
			t.Errorf("%q, %q", knots, o.Explain)
		}
	}
	w.served() // nothing was freed
	two.free(400)
	w.served(a)
	if s := w.arb.Snapshot(w.now).Stats; s.Deadlocks != 1 {
		t.Errorf("%+v", s)
	}
}

func TestF4WithABusyThreadBeside(t *testing.T) {
	w := newWorld(t, waiting(), 1000)
	one, two := w.client(0, 0).threaded(1), w.client(0, 0).threaded(2)
	one.must(400)
	two.must(400)
	a, b := one.wait(400), two.wait(400)
	w.served()
	if due := w.arb.Due(); due.After(w.now.Add(2 * time.Second)) {
		t.Errorf("due in %v", due.Sub(w.now))
	}
	w.pass(1900 * time.Millisecond)
	w.served()
	two.of(2).alloc(1000) // too large; it moves, all the same
	w.arb.Decisions()
	w.pass(1900 * time.Millisecond)
	w.served()
	w.pass(100 * time.Millisecond)
	w.refused(b, arbiter.ReasonDeadlock)
	two.free(400)
	w.served(a)
}

func TestF4OnTwoDevices(t *testing.T) {
	w := newWorld(t, waiting(), 1000, 1000)
	one, two := w.client(0, 0).threaded(1), w.client(0, 1).threaded(1)
	one.must(800)
	two.must(800)
	a := one.on(1).wait(500)
	if o := two.on(0).alloc(500); o.Reason != arbiter.ReasonDeadlock {
		t.Fatalf("%+v", o)
	}
	two.free(800)
	w.served(a)
}

func TestF4OverASharedBudget(t *testing.T) {
	p := waiting()
	p.Rules = []rules.Rule{{Match: rules.Match{User: "eve"}, Scope: ptr(rules.ScopeUser), Max: ptr(size(500))}}
	w := newWorld(t, p, 1000)
	one, two := w.clientOf(w.process(1001, "a"), 0, 0).threaded(1), w.clientOf(w.process(1001, "b"), 0, 0).threaded(1)
	one.must(200)
	two.must(200)
	one.wait(200)
	if o := two.alloc(200); o.Reason != arbiter.ReasonDeadlock {
		t.Fatalf("%+v", o)
	}
}

func TestF4BytesAndSlotsMixed(t *testing.T) {
	p := waiting()
	p.Devices = []rules.DeviceRule{{Match: rules.DeviceMatch{Index: ptr(0)}, SlotsMax: 1}}
	w := newWorld(t, p, 1000, 1000)
	one, two := w.client(0, 0).threaded(1), w.client(0, 1).threaded(1)
	one.contexts(1) // has the slot of device 0
	two.must(800)
	a := one.on(1).wait(500)
	if o := two.on(0).contexts(1); o.Reason != arbiter.ReasonDeadlock {
		t.Fatalf("%+v", o)
	}
	two.free(800)
	w.served(a)
}

// A third party that could help is none of it.
func TestNoCircleWhileSomebodyGoesOn(t *testing.T) {
	w := newWorld(t, waiting(), 1000)
	one, two, busy := w.client(0, 0).threaded(1), w.client(0, 0).threaded(1), w.client(0, 0)
	one.must(300)
	two.must(300)
	busy.must(400)
	a, b := one.wait(300), two.wait(100)
	w.pass(time.Hour / 10)
	w.served()
	busy.free(400)
	w.served(a, b)
}

// Who only waits for his turn, behind somebody who waits for him, is served.
func TestOutOfTurn(t *testing.T) {
	w := newWorld(t, waiting(), 1000)
	one, two := w.client(0, 0).threaded(1), w.client(0, 0).threaded(1)
	one.must(500)
	two.must(400)
	b := two.wait(200)
	if o := one.alloc(50); !o.Granted {
		t.Fatalf("the other waits for it: %+v", o)
	}
	if len(w.knots()) != 0 {
		t.Error("that was no circle")
	}
	one.free(550)
	w.served(b)
}

func TestAGuaranteedJobTakesNoPart(t *testing.T) {
	w := newWorld(t, waiting(), 1000)
	job := w.job(t, arbiter.JobRequest{Min: ptr(size(500)), Max: ptr(size(500))})
	member, other := w.client(job, 0).threaded(1), w.client(0, 0).threaded(1)
	other.must(400)
	other.wait(200)
	for range 5 {
		member.must(100)
	}
	w.pass(time.Minute)
	w.served()
}

// The youngest of a circle is not the youngest that waits for it.
func TestWhoWaitsForACircleIsNotOfIt(t *testing.T) {
	w := newWorld(t, waiting(), 1000)
	one, two := w.client(0, 0).threaded(2), w.client(0, 0).threaded(1)
	newcomer := w.client(0, 0).threaded(1)
	one.must(400)
	two.must(400)
	one.wait(400)
	b, c := two.wait(400), newcomer.wait(500)
	w.pass(2 * time.Second)
	w.refused(b, arbiter.ReasonDeadlock)
	w.arb.Cancel(w.now, c, arbiter.ReasonCancelled)
}

// Threads of one process that wait for each other's slots.
func TestACircleWithinAJob(t *testing.T) {
	w := newWorld(t, capped(1, rules.ScopeThread), 1000, 1000)
	zero := w.client(0, 0).threaded(2)
	one := zero.on(1)
	zero.of(1).contexts(1)
	one.of(2).contexts(1)
	a := one.of(1).contexts(1).Waiting
	if o := zero.of(2).contexts(1); o.Reason != arbiter.ReasonDeadlock || a == 0 {
		t.Fatalf("%+v", o)
	}
	one.of(2).contexts(-1)
	w.served(a)
}

// A circle is found also when a thread that could have helped is gone.
func TestACircleFormsWhenAThreadEnds(t *testing.T) {
	w := newWorld(t, waiting(), 1000)
	one, two := w.client(0, 0).threaded(2), w.client(0, 0).threaded(1)
	one.must(400)
	two.must(400)
	one.wait(400)
	b := two.wait(400)
	w.served()
	one.threaded(1)
	w.refused(b, arbiter.ReasonDeadlock)
}

// A job whose processes all wait for each other stands still, whether another process of it, or
// a thread, goes on that holds nothing: the youngest is refused, and told what would have helped.
func TestOneJobStandsStill(t *testing.T) {
	w := newWorld(t, waiting(), 1000)
	job := w.job(t, arbiter.JobRequest{})
	w.client(job, 0).threaded(1) // only counts the devices
	one, two := w.client(job, 0).threaded(2), w.client(job, 0).threaded(1)
	one.must(400)
	two.must(400)
	a, b := one.wait(400), two.wait(400)
	w.pass(1900 * time.Millisecond)
	w.served()
	w.pass(100 * time.Millisecond)
	w.refused(b, arbiter.ReasonDeadlock)
	if knots := w.knots(); len(knots) != 1 || !strings.Contains(knots[0], "holds 800 bytes on GPU 0, and all of its processes that hold memory wait for each other; "+
		"the request of ffmpeg[104] for 400 bytes on GPU 0 came last") {
		t.Errorf("%q", knots)
	}
	two.free(400)
	w.served(a)
}

// One of a job's processes that holds something and waits for nothing may free it yet.
func TestOneJobGoesOn(t *testing.T) {
	w := newWorld(t, waiting(), 1000)
	job := w.job(t, arbiter.JobRequest{})
	one, two, busy := w.client(job, 0).threaded(1), w.client(job, 0).threaded(1), w.client(job, 0).threaded(1)
	one.must(300)
	two.must(300)
	busy.must(300)
	a, b := one.wait(300), two.wait(300)
	w.pass(time.Hour / 10)
	w.served()
	busy.free(300)
	w.served(a)
	one.free(600)
	w.served(b)
}
