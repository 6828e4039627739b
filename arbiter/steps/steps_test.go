package steps_test

import (
	"slices"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/arbiter/steps"
)

// TestGoOn checks that a call does what its looks allow but a quarter, all in the order in which it was begun, and what a step
// begins before what waits.
func TestGoOn(t *testing.T) {
	var done []int
	s := steps.New(8)
	note := func(_ time.Time, n int) { done = append(done, n) }
	s.Later(func(now time.Time) {
		note(now, 1)
		s.Later(func(now time.Time) { note(now, 2) })
	})
	steps.Each(&s, 2, []int{3, 4, 5}, note)
	steps.Each(&s, 1, nil, note)
	steps.Each(&s, 1, []int{6, 7, 8, 9}, note)
	for _, want := range [][]int{{1, 2, 3, 4, 5, 6, 7}, {1, 2, 3, 4, 5, 6, 7, 8, 9}} {
		s.GoOn(time.Time{})
		s.GoOn(time.Time{}) // it may do no more
		if more := len(want) < 9; !slices.Equal(done, want) || s.Some() != more {
			t.Errorf("%v, and more: %v; want %v", done, s.Some(), want)
		}
		s.Renew()
	}
}

// TestSpend checks that what a call did besides is taken of its looks, and the last quarter is not.
func TestSpend(t *testing.T) {
	s := steps.New(8)
	for _, x := range []struct{ spend, left int }{{1, 7}, {100, 2}, {1, 2}} {
		if s.Spend(x.spend); s.Left != x.left {
			t.Errorf("%d spent: %d left, want %d", x.spend, s.Left, x.left)
		}
	}
	s.Left = 1
	if s.Spend(1); s.Left != 1 {
		t.Errorf("%d left of the last quarter", s.Left)
	}
}

// TestPart checks that what is done in parts is done once each, and what may be done yet is told.
func TestPart(t *testing.T) {
	all, sum := []int{1, 2, 3}, 0
	add := func(n int) { sum += n }
	if left := steps.Part(2, &all, add); left != 0 || sum != 3 || len(all) != 1 {
		t.Errorf("%d, %d, %v", left, sum, all)
	}
	if left := steps.Part(2, &all, add); left != 1 || sum != 6 || len(all) != 0 {
		t.Errorf("%d, %d, %v", left, sum, all)
	}
}
