package arbiter_test

import (
	"math/rand/v2"
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// A client gets no stream beyond its streams.max, whether the arbiter counts them or has delegated the count to the client's page. A random
// test compares with counts of its own. shim/creditwords_test.go tests the delegated count in memory.

// withStreams returns a policy with a streams.max.
func withStreams(most int) rules.Policy {
	p := exact(unlimited())
	p.Defaults.StreamsMax = most
	return p
}

func TestStreamsAreDelegatedWithAContext(t *testing.T) {
	w := newWorld(t, withStreams(3), 1000)
	c := w.client(0, 0)
	if c.stream(1); c.word.lent {
		t.Error("the count of a lease without a context is lent")
	}
	c.stream(-1)
	c.contexts(1)
	for range 3 {
		if !c.stream(1) {
			t.Fatal("refused")
		}
	}
	if !c.word.lent || c.word.streams != 3 || c.row().Streams != 3 {
		t.Errorf("lent %v, the word has %d, the row %d of 3", c.word.lent, c.word.streams, c.row().Streams)
	}
	if c.stream(1) {
		t.Error("a fourth stream of 3")
	}
	if row := c.row(); row.Streams != 3 || row.Denied != 1 {
		t.Errorf("row: %d streams, %d refused", row.Streams, row.Denied)
	}
	c.word.streams -= 2 // without a report to the arbiter
	if row, d := c.row(), w.arb.Snapshot(w.now).Devices[0]; row.Streams != 1 || d.Streams != 1 {
		t.Errorf("the row says %d streams, the device %d, want 1", row.Streams, d.Streams)
	}
}

func TestStreamsAreNotDelegated(t *testing.T) {
	perThread := withStreams(3)
	perThread.Devices = []rules.DeviceRule{{SlotScope: rules.ScopeThread}}
	for name, c := range map[string]*client{
		"slots are threads'": newWorld(t, perThread, 1000).client(0, 0),
		"a stream is charged": func() *client {
			w := newWorld(t, withStreams(3), 1000)
			return w.wish(t, arbiter.SessionRequest{StreamReserve: ptr(accounting.Bytes(10))})
		}(),
	} {
		if c.contexts(1); !c.stream(1) || c.word.lent {
			t.Errorf("%s: lent %v", name, c.word.lent)
		}
	}
}

// wish returns a client whose session asks for limits of its own.
func (w *world) wish(t *testing.T, r arbiter.SessionRequest) *client {
	t.Helper()
	r.Process = w.process(1000, "ffmpeg")
	s, err := w.arb.OpenSession(w.now, r)
	if err != nil {
		t.Fatal(err)
	}
	c := &client{w: w, process: r.Process, session: s.ID}
	return c.on(0)
}

// TestStreamsStayDelegatedWithAContext: while a lease has a context it keeps its slot, so that the arbiter need not know its streams. Without
// a context, the client reports the end of its last stream.
func TestStreamsStayDelegatedWithAContext(t *testing.T) {
	w := newWorld(t, capped(1, ""), 1000)
	c, next := w.client(0, 0), w.client(0, 0)
	c.contexts(1)
	c.stream(1)
	ticket := next.contexts(1).Waiting
	if !c.word.lent {
		t.Error("taken back")
	}
	c.contexts(-1)
	if w.served(); c.word.lent {
		t.Error("its stream alone keeps the slot, and its end is not told")
	}
	c.stream(-1)
	w.served(ticket)
}

func TestStreamsMaxChangesWhileDelegated(t *testing.T) {
	w := newWorld(t, withStreams(4), 1000)
	c := w.client(0, 0)
	c.contexts(1)
	for range 3 {
		c.stream(1)
	}
	set := func(n int) {
		t.Helper()
		if err := w.arb.SetProcessLimits(w.now, rules.Change{Device: rules.AllDevices, Streams: &n}, c.session); err != nil {
			t.Fatal(err)
		}
	}
	set(2)
	if c.word.streams != 3 || c.word.most != 2 || c.stream(1) {
		t.Errorf("3 streams, of at most 2: %+v", c.word)
	}
	c.stream(-1)
	if c.stream(1) {
		t.Error("a third stream of 2")
	}
	set(3)
	if !c.stream(1) || c.stream(1) || c.row().Streams != 3 {
		t.Errorf("of at most 3 there are %d", c.row().Streams)
	}
}

func TestStreamsOfTheDead(t *testing.T) {
	w := newWorld(t, withStreams(4), 1000)
	c := w.client(0, 0)
	c.stream(1)
	c.stream(1)
	c.must(10)
	w.arb.EndSession(w.now, c.session)
	if l := w.arb.Snapshot(w.now).Leases[0]; l.Streams != 2 {
		t.Errorf("what drains has %d streams, want 2", l.Streams)
	}
	w.arb.Gone(w.now, c.session, 0)
	if n := w.arb.Snapshot(w.now).Devices[0].Streams; n != 0 {
		t.Errorf("%d streams are left", n)
	}
}

func TestStreamsOfADaemonBefore(t *testing.T) {
	w := newWorld(t, withStreams(4), 1000)
	c := w.restored(arbiter.SessionRequest{Process: w.process(1000, "x")}, arbiter.RestoredLease{Streams: 1, Contexts: 1})[0]
	x := c.word
	x.streams, x.most, x.lent = 3, 4, true // the page has a newer count than the record, which has 1
	if n := w.arb.Snapshot(w.now).Leases[0].Streams; n != 3 {
		t.Errorf("%d streams, the page says 3", n)
	}
	x.lent = false
	x.streams = 0
	if n := w.arb.Snapshot(w.now).Leases[0].Streams; n != 3 {
		t.Errorf("%d streams by a word that is not lent", n)
	}
	w.arb.Objects(w.now, c.lease, []arbiter.Maker{{Streams: 2, Contexts: 1}})
	if n := w.arb.Snapshot(w.now).Leases[0].Streams; n != 2 {
		t.Errorf("%d streams, the client says 2", n)
	}
}

// TestStreamsAgainstACount lets clients create and destroy streams among changes of limits, contexts and waiting requests, and compares
// the streams of each client and of the device with the counts of the test.
func TestStreamsAgainstACount(t *testing.T) {
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t, capped(rng.IntN(3), ""), 1000)
		var all []*client
		has, most, contexts := map[*client]int{}, map[*client]int{}, map[*client]int{}
		for range 3 {
			c := w.client(0, 0)
			all, most[c] = append(all, c), 256
		}
		for step := range 400 {
			c := all[rng.IntN(len(all))]
			switch rng.IntN(8) {
			case 0, 1, 2:
				slot := c.row().Slot
				got := c.stream(1)
				if got {
					has[c]++
				}
				if slot && got != (has[c] <= most[c] && (got || has[c] < most[c])) || got && has[c] > most[c] {
					t.Fatalf("seed %d, step %d: of at most %d streams %d, one more: %v", seed, step, most[c], has[c], got)
				}
			case 3, 4, 5:
				if has[c] > 0 {
					c.stream(-1)
					has[c]--
				}
			case 6:
				if contexts[c] > 0 {
					c.contexts(-1)
					contexts[c]--
				} else if c.row().Slot && c.contexts(1).Granted {
					contexts[c]++
				}
			case 7:
				n := 1 + rng.IntN(6)
				if err := w.arb.SetProcessLimits(w.now, rules.Change{Device: rules.AllDevices, Streams: &n}, c.session); err != nil {
					t.Fatal(err)
				}
				most[c] = n
			}
			for decided := w.arb.Decisions(); len(decided) > 0; decided = w.arb.Decisions() {
				for _, d := range decided { // the test counts no stream for a request that waited, so that a later grant is taken back
					w.arb.TakeBack(w.now, d.Receipt)
				}
			}
			total := 0
			for _, c := range all {
				if got := c.row().Streams; got != has[c] {
					t.Fatalf("seed %d, step %d: the row says %d streams, there are %d (lent %v)", seed, step, got, has[c], c.word.lent)
				}
				total += has[c]
			}
			if d := w.arb.Snapshot(w.now).Devices[0]; d.Streams != total {
				t.Fatalf("seed %d, step %d: the device has %d streams, there are %d", seed, step, d.Streams, total)
			}
		}
	}
}
