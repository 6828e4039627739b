package steps

import "time"

// Steps is what is to be done yet, and how much of it the call that goes on may do. What a step begins comes before all
// that waits, and so before its next.
type Steps struct {
	AtOnce int // looks that a call may take
	Left   int // that this one may take yet

	todo []step
}

// step is something that is done in steps: each call does the next. False: that was the last.
type step func(now time.Time) (more bool)

// New returns Steps with nothing to be done.
func New(atOnce int) Steps { return Steps{AtOnce: atOnce, Left: atOnce} }

// Renew is for another call.
func (s *Steps) Renew() { s.Left = s.AtOnce }

// Some reports whether something is to be done yet.
func (s *Steps) Some() bool { return len(s.todo) > 0 }

// Later has something done, as soon as a call may.
func (s *Steps) Later(do func(now time.Time)) {
	s.todo = append(s.todo, func(now time.Time) bool { do(now); return false })
}

// Each has something done with each of all, in their order: with so many in the time of one look.
func Each[T any](s *Steps, perLook int, all []T, do func(now time.Time, x T)) {
	if len(all) == 0 {
		return
	}
	s.todo = append(s.todo, func(now time.Time) bool {
		Part(perLook, &all, func(x T) { do(now, x) })
		return len(all) > 0
	})
}

// Part has something done with up to so many of those that are left, and returns how many more there may be.
func Part[T any](most int, left *[]T, do func(x T)) int {
	for ; most > 0 && len(*left) > 0; most-- {
		x := (*left)[0]
		*left = (*left)[1:]
		do(x)
	}
	return most
}

// GoOn does as many steps as a call may, and leaves a quarter of its looks for what it does besides.
func (s *Steps) GoOn(now time.Time) {
	for len(s.todo) > 0 && s.Left > s.AtOnce/4 {
		waiting := s.todo
		s.todo = nil // for what the step begins
		if s.Spend(1); !waiting[0](now) {
			waiting = waiting[1:]
		}
		if s.todo == nil {
			s.todo = waiting
		} else {
			s.todo = append(s.todo, waiting...)
		}
	}
}

// Spend counts that a call did as much as so many looks, of those that it may take before the last quarter.
func (s *Steps) Spend(looks int) { s.Left = min(s.Left, max(s.Left-looks, s.AtOnce/4)) }
