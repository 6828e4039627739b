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
		s.Run()
		w.arb.Settle(w.now, s)
	}
	return searched
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
	s.Run()
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
			s.Run()
			w.arb.Cancel(w.now, newcomer.wait(1), arbiter.ReasonCancelled)
			w.arb.Settle(w.now, s)
		}
		w.pass(time.Second)
	}
	if got := w.decided(); got[tickets[len(tickets)-1]] != arbiter.ReasonDeadlock {
		t.Errorf("the circle stands: %v", got)
	}
}
