package arbiter_test

import (
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// waitedFor is what waitersFor can have requests wait for.
var waitedFor = []string{"bytes", "mixed", "slots", "shared", "full"}

// waitersFor has n requests wait at a device, so many of each process, and returns a client that is granted what it asks for
// there, and one that holds most of what they wait for: bytes of the device, the same of two priorities, slots, a budget that their rule has them share, and bytes of the
// device where they share one that has room.
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

// However many wait, a request that is granted beside them, and what goes back at the limit that stops
// them, have only those looked at who might be served.
func TestWhoWaitsBehindOthersIsNotLookedAt(t *testing.T) {
	const waiting, each, most = 2000, 10, 40
	for _, what := range waitedFor {
		w, runs, holder := waitersFor(t, what, waiting, each)
		for _, x := range []struct {
			name string
			do   func()
		}{
			{"a stream", func() { runs.streams(1); runs.streams(-1) }},
			{"bytes", func() { runs.must(mib); runs.free(mib) }},
			{"some of what they wait for", func() { holder.free(mib) }},
			{"all of it", func() { holder.free(holder.word.granted) }},
		} {
			w.now = w.now.Add(time.Microsecond)
			before := w.arb.Looked()
			if x.do(); what == "full" && x.name == "all of it" {
				continue // who is served leaves no room in their budget: there they wait now, all of them
			}
			if w.arb.Looked()-before > most {
				t.Errorf("%d requests wait (%s): %s had %d of them looked at", waiting, what, x.name, w.arb.Looked()-before)
			}
		}
	}
}

// Whoever rests is served in turn when the limit that stops him has room for him, and when it is raised.
func TestWhoRestsIsServedInTurn(t *testing.T) {
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

// manyOfAJob is a full device at which each process of a job waits behind somebody else, and holds something.
func manyOfAJob(t *testing.T, n int) (w *world, all []*client) {
	w = newWorld(t, waiting(), accounting.Bytes(n+100))
	job := w.job(t, arbiter.JobRequest{})
	for range n {
		c := w.client(job, 0)
		c.must(1)
		all = append(all, c)
	}
	first := w.client(0, 0)
	first.must(100)
	first.wait(90)
	for _, c := range all {
		c.wait(50)
	}
	return w, all
}

// Where hundreds of one job's processes wait, what one of them frees or asks for has only few of the
// others' requests looked at, and each word once at most.
func TestWhoWaitsBesideOthersOfHisJobIsNotLookedAt(t *testing.T) {
	w, all := manyOfAJob(t, 500)
	for what, do := range map[string]func(){
		"it frees":   func() { all[7].free(1) },
		"it waits":   func() { all[8].wait(50) },
		"it is dead": func() { w.arb.EndSession(w.now, all[9].session) },
	} {
		looked, calls := w.arb.Looked(), w.words.calls
		do()
		if looked, calls = w.arb.Looked()-looked, w.words.calls-calls; looked > 40 || calls > len(all)*3/2 {
			t.Errorf("%s: %d requests were looked at, and words %d times", what, looked, calls)
		}
	}
}

// Who can be served is served, though before each call something has changed of a job of which hundreds wait.
func TestServedWhileAJobOfManyChanges(t *testing.T) {
	const n = 400
	w, all := manyOfAJob(t, n)
	w.arb.LookAtOnce(8)
	served := 0
	for _, c := range all {
		c.free(1)
		w.arb.Tick(w.now)
		served += len(w.decided())
	}
	if served == 0 {
		t.Errorf("%d bytes are free, and nobody has been served", n)
	}
}

// Who waits is looked at when what another process of his job has makes a difference to him: where it gives
// back what is reserved for them, and where it comes to have what their budget then has no room for.
func TestWhoWaitsIsLookedAtForOthersOfHisJob(t *testing.T) {
	begin := func(r arbiter.JobRequest) (w *world, one *client, ticket arbiter.TicketID) {
		w = newWorld(t, waiting(), 1000)
		job := w.job(t, r)
		one, two := w.client(job, 0), w.client(job, 0)
		one.must(250)
		two.must(50)
		first := w.client(0, 0)
		first.must(650)
		for range 300 { // more than are looked at with time alone
			first.wait(200)
		}
		return w, one, two.wait(100)
	}
	w, one, ticket := begin(arbiter.JobRequest{Min: ptr(size(300))})
	one.free(100)
	w.served(ticket)
	w, one, ticket = begin(arbiter.JobRequest{Max: ptr(size(400))})
	one.word.told.Known = true
	for range 2 {
		w.reads(one.process.PID, 310)
		w.pass(time.Second)
	}
	w.refused(ticket, arbiter.ReasonOverBudget)
}
