package arbiter_test

import (
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/arbiter"
)

// If jobs wait in a cycle for memory that they hold, the youngest request of the deadlock is refused, so that the others can be served.
// crowd_test.go has deadlocks of many clients, and queue_deadlock_test.go the search of the reference.

// threaded sets how many threads of a client make calls.
func (c *client) threaded(n int) *client {
	c.w.arb.Threads(c.w.now, c.session, n)
	return c
}

// deadlocks returns the texts of the events about broken deadlocks.
func (w *world) deadlocks() (texts []string) {
	for _, e := range w.arb.Events() {
		if e.Kind == arbiter.EventDeadlock {
			texts = append(texts, e.Text)
		}
	}
	return texts
}

// TestOutOfTurn: a request that fits is served if it waits only behind a request that waits for its job.
func TestOutOfTurn(t *testing.T) {
	w := newWorld(t, waiting(), 1000)
	one, two := w.client(0, 0).threaded(1), w.client(0, 0).threaded(1)
	one.must(500)
	two.must(400)
	b := two.wait(200)
	if o := one.alloc(50); !o.Granted {
		t.Fatalf("the other waits for it: %+v", o)
	}
	if len(w.deadlocks()) != 0 {
		t.Error("that was no circle")
	}
	one.free(550)
	w.served(b)
}

// TestVictimIsInTheDeadlock: the victim is the youngest request of the deadlock, and not a younger one that waits for the deadlock.
func TestVictimIsInTheDeadlock(t *testing.T) {
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

// TestDeadlockWithinOneJob: if all processes of a job that hold something wait for each other, they are deadlocked, even if another process or
// thread that holds nothing runs. The youngest request is refused, and the message says what would have helped.
func TestDeadlockWithinOneJob(t *testing.T) {
	w := newWorld(t, waiting(), 1000)
	job := w.job(t, arbiter.JobRequest{})
	w.client(job, 0).threaded(1) // this process holds nothing: it only counts the devices
	one, two := w.client(job, 0).threaded(2), w.client(job, 0).threaded(1)
	one.must(400)
	two.must(400)
	a, b := one.wait(400), two.wait(400)
	w.pass(1900 * time.Millisecond)
	w.served()
	w.pass(100 * time.Millisecond)
	w.refused(b, arbiter.ReasonDeadlock)
	if knots := w.deadlocks(); len(knots) != 1 || !strings.Contains(knots[0], "holds 800 bytes on GPU 0, and all of its processes that hold memory wait for each other; "+
		"the request of ffmpeg[104] for 400 bytes on GPU 0 came last") {
		t.Errorf("%q", knots)
	}
	two.free(400)
	w.served(a)
}
