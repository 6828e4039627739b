package arbiter_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// A client cannot exhaust the daemon: its threads and waiting requests, and those of its user, are bounded, and a refusal names the bound.
// threads/threads_test.go tests the set of threads alone.

// TestThreadsAreBounded: a client chooses the numbers of its threads, and only MaxThreads of them are tracked. The next thread is refused
// with its number, and takes nothing from other clients.
func TestThreadsAreBounded(t *testing.T) {
	for what, take := range map[string]func(c *client, thread int) string{
		"holds":    func(c *client, n int) string { return c.of(uint32(n)).hold(1).Explain },
		"memory":   func(c *client, n int) string { return c.of(uint32(n)).alloc(1).Explain },
		"contexts": func(c *client, n int) string { return c.of(uint32(n)).contexts(1).Explain },
		"streams":  func(c *client, n int) string { return c.of(uint32(n)).streams(1).Explain },
	} {
		t.Run(what, func(t *testing.T) {
			p := capped(0, rules.ScopeThread)
			p.Defaults.StreamsMax = 1 << 20
			w := newWorld(t, p, 1<<40)
			c, other := w.client(0, 0), w.client(0, 0)
			for n := 1; n <= arbiter.MaxThreads; n++ {
				if text := take(c, n); text != "" {
					t.Fatalf("thread %d: %s", n, text)
				}
			}
			for n := arbiter.MaxThreads + 1; n <= 8000; n++ {
				if text := take(c, n); !strings.Contains(text, fmt.Sprintf("thread %d is refused until", n)) || !strings.Contains(text, "1024 threads") {
					t.Fatalf("thread %d: %q", n, text)
				}
			}
			if got := w.holders(); got != arbiter.MaxThreads {
				t.Errorf("%d slots are taken", got)
			}
			if text := take(c, 7); text != "" { // a tracked thread goes on
				t.Errorf("thread 7: %s", text)
			}
			if text := take(other, 1); text != "" {
				t.Errorf("another process: %s", text)
			}
		})
	}
}

// TestAThreadIsForgottenWithItsLastObject: a thread is forgotten with its last object of any kind, whichever thread freed it.
func TestAThreadIsForgottenWithItsLastObject(t *testing.T) {
	w := newWorld(t, capped(0, rules.ScopeThread), 1<<40)
	c := w.client(0, 0)
	for n := uint32(1); n <= 8000; n++ { // one after the other
		x := c.of(n)
		if x.streams(1).Explain+x.hold(1).Explain != "" {
			t.Fatalf("thread %d is refused", n)
		}
		x.hold(-1)
		x.streams(-1)
	}
	for n := uint32(1); n <= arbiter.MaxThreads; n++ {
		c.of(n).hold(1)
	}
	c.of(99999).hold(-1) // an unknown thread: the objects of the first thread are removed instead
	if o := c.of(5000).hold(1); !o.Granted {
		t.Error(o.Explain)
	}
	if o := c.of(5001).hold(1); o.Granted || o.Reason != arbiter.ReasonThreads {
		t.Errorf("%+v", o)
	}
	w.arb.EndSession(w.now, c.session)
	w.arb.Gone(w.now, c.session, 0)
	if got := w.holders(); got != 0 {
		t.Errorf("%d slots are left behind", got)
	}
}

// TestThreadsOfAUser: the processes of one user have at most half of all tracked threads.
func TestThreadsOfAUser(t *testing.T) {
	w := newWorld(t, capped(0, rules.ScopeThread), 1<<40)
	refused := ""
	for range arbiter.MaxThreadsInAll/2/arbiter.MaxThreads + 1 {
		c := w.client(0, 0)
		for n := uint32(1); n <= arbiter.MaxThreads && refused == ""; n++ {
			refused = c.of(n).hold(1).Explain
		}
	}
	if !strings.Contains(refused, "user 1000") || w.holders() != arbiter.MaxThreadsInAll/2 {
		t.Errorf("%d slots are taken: %q", w.holders(), refused)
	}
	if o := w.clientOf(w.process(1001, "x"), 0, 0).of(1).hold(1); !o.Granted {
		t.Error(o.Explain)
	}
}

// TestWaitersOfAProcessAreBounded: a request above the bound of a process is refused, and the others go on waiting.
func TestWaitersOfAProcessAreBounded(t *testing.T) {
	p := exact(unlimited())
	p.Defaults.OnFull = rules.OnFullWait
	w := newWorld(t, p, 1000)
	w.client(0, 0).must(1000)
	c := w.client(0, 0)
	for n := range arbiter.MaxTicketsOfProcess {
		if o := c.alloc(accounting.Bytes(1 + n)); o.Waiting == 0 {
			t.Fatalf("request %d: %+v", n, o)
		}
	}
	if o := c.alloc(1); o.Waiting != 0 || o.Reason != arbiter.ReasonCrowded || !strings.Contains(o.Explain, "64 requests waiting") {
		t.Errorf("%+v", o)
	}
	other := w.client(0, 0)
	if o := other.alloc(1); o.Waiting == 0 {
		t.Errorf("%+v", o)
	}
	w.arb.EndSession(w.now, c.session)
	if o := w.client(0, 0).alloc(1); o.Waiting == 0 {
		t.Errorf("afterwards: %+v", o)
	}
}

// TestWaitersOfAUserAreBounded: one user has at most half of the queue, a privileged user all of it, and the refusal names the bound.
func TestWaitersOfAUserAreBounded(t *testing.T) {
	p := exact(unlimited())
	p.Defaults.OnFull = rules.OnFullWait
	w := newWorld(t, p, 1000)
	w.client(0, 0).must(1000)
	fill := func(uid uint32) (waiting int, refused arbiter.Result) {
		for {
			c := w.clientOf(w.process(uid, "x"), 0, 0)
			for range arbiter.MaxTicketsOfProcess / 2 {
				if refused = c.alloc(1); refused.Waiting == 0 {
					return waiting, refused
				}
				waiting++
			}
		}
	}
	if n, o := fill(bob); n != 512 || o.Reason != arbiter.ReasonCrowded || !strings.Contains(o.Explain, "user 1000 has 512 requests waiting") {
		t.Errorf("%d of bob's wait, then %+v", n, o)
	}
	if n, o := fill(0); n != 512 || o.Reason != arbiter.ReasonCrowded || !strings.Contains(o.Explain, "1024 requests wait already") {
		t.Errorf("%d of root's wait beside them, then %+v", n, o)
	}
}
