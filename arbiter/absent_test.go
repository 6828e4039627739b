package arbiter_test

import (
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// After a restart of the daemon, or a resumed session, clients must ask again for what they waited for. Until then their requests keep
// their places and are not granted; after three seconds (AbsentFor) they are removed. queue_restart_test.go restarts the daemon at random.

// absence makes a device of 1000 bytes after a restart: one client holds all of it, and another has not yet asked again for half of it.
type absence struct {
	*world
	holder, first, newcomer *client
	ticket                  arbiter.TicketID
}

func newAbsence(t *testing.T) *absence {
	t.Helper()
	w := newWorld(t, waiting(), 1000)
	x := &absence{world: w, holder: w.client(0, 0), first: w.client(0, 0), newcomer: w.client(0, 0)}
	x.holder.must(1000)
	place := arbiter.Place{Arrival: 7, Since: w.now.Add(-time.Minute), Absent: true}
	w.arb.Restore(w.now, func() { x.ticket = x.first.askAt(place, 500).Waiting })
	if x.ticket == 0 {
		t.Fatal("a request of an absent client does not wait")
	}
	return x
}

// askAt asks for bytes with a place in the queue.
func (c *client) askAt(place arbiter.Place, n accounting.Bytes) arbiter.Result {
	return c.w.arb.Ask(c.w.now, arbiter.Request{Lease: c.lease, What: arbiter.WantsBytes, Bytes: n, Place: place})
}

// TestAbsentClientBlocks: the request of an absent client blocks later ones whether it fits or not, and is granted when its client asks again.
func TestAbsentClientBlocks(t *testing.T) {
	x := newAbsence(t)
	late := x.newcomer.wait(300)
	x.holder.free(500)
	x.served() // the absent request fits, and neither it nor a later one is granted
	if o := x.first.askAt(x.arb.TakePlace(x.now, x.ticket), 500); !o.Granted {
		t.Errorf("its client asks again: %+v", o)
	}
	x.served()
	x.holder.free(500)
	x.served(late)
}

// TestAbsentClientWithoutAPlace: a request of an absent client whose place was lost waits last, and is not granted either.
func TestAbsentClientWithoutAPlace(t *testing.T) {
	w := newWorld(t, waiting(), 1000)
	absent := w.client(0, 0)
	if o := absent.askAt(arbiter.Place{Absent: true}, 500); o.Granted || o.Waiting == 0 {
		t.Errorf("nobody asked: %+v", o)
	}
}

// TestAbsentClientWaitsOn: a request that is made again and does not fit yet waits in its old place. Its deadline counts from its first
// arrival.
func TestAbsentClientWaitsOn(t *testing.T) {
	x := newAbsence(t)
	late := x.newcomer.wait(500)
	place := x.arb.TakePlace(x.now, x.ticket)
	again := x.first.askAt(place, 500).Waiting
	if got := x.arb.Snapshot(x.now).Queue; len(got) != 2 || got[0].Ticket != uint64(again) || got[0].WaitedMs != time.Minute.Milliseconds() {
		t.Errorf("the queue is %+v", got)
	}
	x.holder.free(500)
	x.served(again)
	x.holder.free(500)
	x.served(late)
}

// TestAbsentClientGivesUp: a client that does not ask again within three seconds loses its place.
func TestAbsentClientGivesUp(t *testing.T) {
	x := newAbsence(t)
	late := x.newcomer.wait(500)
	x.holder.free(500)
	if due := x.arb.Due(); due.After(x.now.Add(arbiter.AbsentFor)) {
		t.Errorf("the arbiter is woken at %v", due)
	}
	x.pass(arbiter.AbsentFor)
	if got := x.decided(); len(got) != 2 || got[x.ticket] != arbiter.ReasonCancelled || got[late] != arbiter.ReasonNone {
		t.Errorf("decided: %v", got)
	}
	if place := x.arb.TakePlace(x.now, x.ticket); place != (arbiter.Place{}) {
		t.Errorf("it has still the place %+v", place)
	}
}

// TestAbsentStarts: jobs and sessions that wait to start exist while their clients are absent, and are removed if these do not ask again.
func TestAbsentStarts(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 1000)
	holder := w.client(0, 0)
	holder.must(700)
	least := accounting.Size{Bytes: 500}
	place := arbiter.Place{Arrival: 3, Since: w.now, Absent: true}
	info, err := w.arb.OpenJob(w.now, arbiter.JobRequest{Process: rules.Process{PID: 4000}, Min: &least, Place: place})
	if err != nil || info.Waiting == 0 {
		t.Fatalf("%+v, %v", info, err)
	}
	if o := w.client(0, 0).alloc(200); o.Granted {
		t.Error("a newcomer passes a job that waits for its start")
	}
	jobs := len(w.arb.Jobs())
	w.pass(arbiter.AbsentFor)
	if got := len(w.arb.Jobs()); got != jobs-1 {
		t.Errorf("%d jobs, %d before", got, jobs)
	}
	if got := w.decided(); len(got) != 1 || got[info.Waiting] != arbiter.ReasonCancelled {
		t.Errorf("decided: %v", got)
	}
}

// TestLeftClient: a request whose client has resumed its session keeps its place, is not granted, and blocks no other request until its client asks again.
func TestLeftClient(t *testing.T) {
	w := newWorld(t, waiting(), 1000)
	holder, waiter, other := w.client(0, 0), w.client(0, 0), w.client(0, 0)
	holder.must(1000)
	ticket, late := waiter.wait(500), other.wait(300)
	w.arb.MarkAbsent(w.now, []arbiter.TicketID{ticket})
	holder.free(500)
	w.served(late)
	last := w.client(0, 0).wait(400)
	again := waiter.askAt(w.arb.TakePlace(w.now, ticket), 500).Waiting
	holder.free(300)
	w.served(again)
	holder.free(200)
	other.free(300)
	w.served(last)
}

// TestAbsentClientAndDeadlock: a job whose client is absent may go on, so that no request is refused because of it. A client that stays
// away does not hide a deadlock of other jobs.
func TestAbsentClientAndDeadlock(t *testing.T) {
	w := newWorld(t, waiting(), 1000)
	one, two, away := w.client(0, 0).threaded(1), w.client(0, 0).threaded(1), w.client(0, 0).threaded(1)
	one.must(400)
	two.must(400)
	w.arb.MarkAbsent(w.now, []arbiter.TicketID{away.wait(300)})
	ticket := one.wait(400)
	w.arb.MarkAbsent(w.now, []arbiter.TicketID{ticket})
	two.wait(400)
	w.served()
	if o := one.askAt(w.arb.TakePlace(w.now, ticket), 400); o.Waiting == 0 {
		t.Errorf("the elder one is back: %+v", o)
	}
	got := w.decided()
	if len(got) != 1 || w.arb.Snapshot(w.now).Stats.Deadlocks != 1 {
		t.Errorf("decided: %v", got)
	}
}

// TestAbsentClientKeepsAPlaceForMoreThanCouldFit: after a restart the amount of a request is known only roughly. If it seems too large, the
// request blocks no other and is not refused: its client asks again for the exact amount, in the same place.
func TestAbsentClientKeepsAPlaceForMoreThanCouldFit(t *testing.T) {
	x := newAbsence(t)
	place := arbiter.Place{Arrival: 8, Since: x.now, Absent: true}
	var ticket arbiter.TicketID
	x.arb.Restore(x.now, func() { ticket = x.newcomer.askAt(place, 1001).Waiting })
	if n := x.arb.Snapshot(x.now).Stats.Denied; ticket == 0 || n != 0 {
		t.Fatalf("ticket %d, %d refusals", ticket, n)
	}
	if got := x.arb.TakePlace(x.now, ticket); got.Arrival != place.Arrival {
		t.Errorf("its place is %+v, want arrival %d", got, place.Arrival)
	}
}
