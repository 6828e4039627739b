package queue_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gpuarb/gpuarb/arbiter/queue"
)

// waiter is one who waits: who arrived first comes first, among those of the highest rank.
type waiter struct{ rank, arrival, at int }

func order(x, y *waiter) int {
	if x.rank != y.rank {
		return y.rank - x.rank
	}
	return x.arrival - y.arrival
}

func TestAQueueIsInOrderWhoeverComesAndGoes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	q, want := queue.New(order), []*waiter{}
	for i := range 4000 {
		switch {
		case len(want) == 0 || random.IntN(5) < 3 && len(want) < 50:
			x := &waiter{rank: random.IntN(3), arrival: i}
			q.Insert(x)
			want = append(want, x)
		case random.IntN(20) == 0: // the order changes
			for _, x := range want {
				x.rank = random.IntN(3)
			}
			q.Sort()
		default:
			at := random.IntN(len(want))
			q.Remove(want[at])
			want = slices.Delete(want, at, at+1)
		}
		slices.SortFunc(want, order)
		if !slices.Equal(q.All(), want) || q.Len() != len(want) {
			t.Fatalf("step %d: %v, want %v", i, q.All(), want)
		}
		if len(want) == 0 {
			continue
		}
		at := random.IntN(len(want))
		if q.First() != want[0] || !slices.Equal(q.Before(want[at]), want[:at]) || !slices.Equal(q.After(want[at]), want[at+1:]) {
			t.Fatalf("step %d: first %v, after %v: %v, want %v", i, q.First(), want[at], q.After(want[at]), want)
		}
	}
}

func TestNobodyIsFirstInAnEmptyQueue(t *testing.T) {
	q := queue.New(order)
	if q.First() != nil || len(q.After(&waiter{})) != 0 {
		t.Errorf("first %v", q.First())
	}
	one, gone := &waiter{arrival: 1}, &waiter{arrival: 0}
	q.Insert(one)
	if after := q.After(gone); len(after) != 1 || after[0] != one {
		t.Errorf("after who is not there: %v", after)
	}
}

func TestWhoeverIsOutOfOrderCanBeRemoved(t *testing.T) {
	q := queue.New(order)
	all := []*waiter{{arrival: 1}, {arrival: 2}, {arrival: 3}}
	for _, x := range all {
		q.Insert(x)
	}
	all[1].arrival = 9
	q.Remove(all[1])
	if !slices.Equal(q.All(), []*waiter{all[0], all[2]}) {
		t.Errorf("%v", q.All())
	}
}

func TestAHeapKnowsItsFirst(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	h, in := queue.NewHeap(func(x, y *waiter) bool { return x.arrival < y.arrival }, func(x *waiter) *int { return &x.at }), []*waiter{}
	if _, some := h.First(); some {
		t.Error("an empty heap has a first")
	}
	for i := range 2000 {
		switch {
		case len(in) == 0 || random.IntN(2) == 0 && len(in) < 40:
			x := &waiter{arrival: random.IntN(100)}
			h.Put(x)
			in = append(in, x)
		case random.IntN(2) == 0:
			x := in[random.IntN(len(in))]
			x.arrival = random.IntN(100)
			h.Put(x)
		default:
			at := random.IntN(len(in))
			h.Remove(in[at])
			h.Remove(in[at]) // which does nothing
			in = slices.Delete(in, at, at+1)
		}
		first, some := h.First()
		if some != (len(in) > 0) {
			t.Fatalf("step %d: there is a first: %v, of %d", i, some, len(in))
		}
		for _, x := range in {
			if x.arrival < first.arrival || x.at == 0 {
				t.Fatalf("step %d: the first is %v, %v is there", i, first, x)
			}
		}
	}
}
