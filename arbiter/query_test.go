package arbiter_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// A program that asks how much memory is free gets the number of bytes that it can allocate. The expected value comes from a second, equal
// state, in which the program allocates that much and one byte more. alloc_test.go tests the answers to allocations.

// freeBytes returns the bytes that a query shows as free.
func (c *client) freeBytes(device int) accounting.Bytes {
	c.w.t.Helper()
	q, err := c.w.arb.Query(c.w.now, c.session, device)
	if err != nil {
		c.w.t.Fatal(err)
	}
	return min(q.Total-q.Used, q.Room)
}

func TestQuery(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 8*gib)
	job := w.job(t, arbiter.JobRequest{Max: ptr(size(gib))})
	x, bare := w.client(job, 0), w.client(0, 0)
	x.must(300 * mib)
	x.free(100 * mib)
	bare.must(7 * gib)
	for _, c := range []struct {
		who  *client
		want arbiter.Room
	}{
		{x, arbiter.Room{Total: gib, Used: 200 * mib, Room: gib - 200*mib, Lease: x.lease, Credit: 100 * mib, Limited: true}},
		{bare, arbiter.Room{Total: 8 * gib, Used: 7 * gib, Room: gib - 200*mib, Lease: bare.lease}},
	} {
		if got, err := w.arb.Query(w.now, c.who.session, 0); err != nil || got != c.want {
			t.Errorf("got %+v, %v, want %+v", got, err, c.want)
		}
	}
	if _, err := w.arb.Query(w.now, 99, 0); !errors.Is(err, arbiter.ErrNoSession) {
		t.Error(err)
	}
	if _, err := w.arb.Query(w.now, x.session, 9); !errors.Is(err, arbiter.ErrNoDevice) {
		t.Error(err)
	}
}

// TestQueryWithoutALease: a session gets the same answer before it has a lease as after.
func TestQueryWithoutALease(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 8*gib)
	w.client(w.job(t, arbiter.JobRequest{Min: ptr(size(3 * gib))}), 0).must(gib)
	s, err := w.arb.OpenSession(w.now, arbiter.SessionRequest{Process: w.process(1000, "new"), Max: ptr(size(6 * gib))})
	if err != nil {
		t.Fatal(err)
	}
	want := arbiter.Room{Total: 6 * gib, Room: 5 * gib, Limited: true}
	if got, err := w.arb.Query(w.now, s.ID, 0); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if n := len(w.arb.Snapshot(w.now).Leases); n != 1 {
		t.Errorf("%d leases: a question opened one", n)
	}
}

// TestQueryCountsReservations: memory that is reserved for other jobs below a shared budget, or kept for waiting requests, is not shown
// as free. Memory that is reserved for the asker is, whatever other jobs do.
func TestQueryCountsReservations(t *testing.T) {
	p := exact(unlimited())
	p.Rules = []rules.Rule{{Match: rules.Match{User: "bob"}, Scope: ptr(rules.ScopeUser), Max: ptr(size(6 * gib))}}
	w := newWorld(t, p, 8*gib)
	kept := w.client(w.job(t, arbiter.JobRequest{Min: ptr(size(2 * gib)), Max: ptr(size(2 * gib))}), 0)
	x := w.client(0, 0)
	if got := x.freeBytes(0); got != 4*gib {
		t.Errorf("%s are free below a budget of 6 GiB of which 2 are reserved", got.Human())
	}
	eve := w.clientOf(w.process(1001, "eve"), 0, 0)
	eve.must(5 * gib) // 1 GiB is left on the device
	waits := w.waiter(t, 1001)
	waits.must(100 * mib)
	waits.wait(2 * gib)
	if got := x.freeBytes(0); got != 0 {
		t.Errorf("%s are free behind one who waits for all that there is", got.Human())
	}
	if got := kept.freeBytes(0); got != 2*gib {
		t.Errorf("%s are free of the 2 GiB that are reserved", got.Human())
	}
	eve.free(4 * gib)
	if got := x.freeBytes(0); got == 0 {
		t.Error("nothing is free where nobody waits any more")
	}
}

// waiter returns a client whose requests wait.
func (w *world) waiter(t *testing.T, uid uint32) *client {
	t.Helper()
	p := w.process(uid, "waiter")
	s, err := w.arb.OpenSession(w.now, arbiter.SessionRequest{Process: p, OnFull: rules.OnFullWait})
	if err != nil {
		t.Fatal(err)
	}
	return (&client{w: w, process: p, session: s.ID}).on(0)
}

// TestQueryEqualsWhatCanBeAllocated: a query returns exactly the bytes that can be allocated, in any state.
func TestQueryEqualsWhatCanBeAllocated(t *testing.T) {
	for seed := range uint64(300) {
		_, clients := someBooks(t, seed)
		for i := range clients {
			for _, more := range []accounting.Bytes{0, 1} { // each on books of its own
				w, twins := someBooks(t, seed)
				c := twins[i]
				free := c.freeBytes(0)
				if free+more == 0 {
					continue
				}
				if o := c.alloc(free + more); o.Granted != (more == 0) {
					t.Fatalf("seed %d, client %d is told that %d bytes are free; %d more than that: %+v\n%+v",
						seed, i, free, more, o, w.arb.Snapshot(w.now))
				}
			}
		}
	}
}

// someBooks makes a random state: jobs with reservations and budgets, shared budgets, idle credit, and sometimes a waiting request.
func someBooks(t *testing.T, seed uint64) (*world, []*client) {
	r := rand.New(rand.NewPCG(seed, 1))
	p := exact(unlimited())
	if r.IntN(2) == 0 {
		p.Rules = []rules.Rule{{Match: rules.Match{User: "bob"}, Scope: ptr(rules.ScopeUser), Max: ptr(size(700))}}
	}
	w := newWorld(t, p, 1000)
	var clients []*client
	for range 2 + r.IntN(3) {
		request := arbiter.JobRequest{Process: w.process(1000, "a")}
		if r.IntN(2) == 0 {
			request.Max = ptr(size(accounting.Bytes(100 + r.IntN(900))))
		}
		if r.IntN(2) == 0 {
			request.Min = ptr(size(accounting.Bytes(r.IntN(200))))
		}
		info, err := w.arb.OpenJob(w.now, request)
		if err != nil || info.Waiting != 0 {
			continue
		}
		for range 1 + r.IntN(2) {
			clients = append(clients, w.clientOf(w.process(1000, "b"), info.ID, 0))
		}
	}
	clients = append(clients, w.clientOf(w.process(1001, "eve"), 0, 0))
	for range 20 {
		c := clients[r.IntN(len(clients))]
		if n := accounting.Bytes(1 + r.IntN(300)); c.alloc(n).Granted && r.IntN(2) == 0 {
			c.free(n / 2)
		}
	}
	if r.IntN(3) == 0 {
		x := w.waiter(t, 1001)
		x.alloc(accounting.Bytes(1 + r.IntN(800)))
		clients[r.IntN(len(clients))].free(0)
	}
	return w, clients
}
