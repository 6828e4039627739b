package arbiter

import (
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/internal/figures"
)

// This file has what is kept of users: what has come of their requests, and for how long these waited. users.go finds and counts users.

// user is a user of whom a job is there, or was: what has come of all of his requests.
type user struct {
	uid      uint32
	name     string
	jobs     int
	gauge    gauge // of his pressure
	waits    waitCounts
	refusals reasonCounts
}

// users are the users that are remembered: those that have jobs, and the last that had one.
type users struct {
	byUID map[uint32]*user
	idle  []*user // those without jobs, by how long they are so
}

// maxIdleUsers is how many users without a job are remembered: so whatever lists users, and the state file, is bounded by
// the bounds on jobs.
const maxIdleUsers = 64

// outcomes are what becomes of requests that wait, by the names that people see: granted, refused for one of these reasons, or
// for any other (a limit was lowered, its device lost).
var outcomes = [...]string{"granted", "timeout", "cancelled", "deadlock", "refused"}

// waitBounds are the classes by which waits are counted: up to so long, and longer.
var waitBounds = [...]time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second, time.Minute, 10 * time.Minute}

// waitCounts is for how long requests waited, by outcome and class.
type waitCounts [len(outcomes)]struct {
	classes [len(waitBounds) + 1]uint64
	sum     time.Duration
}

// reasonCounts is how many requests were refused, by Reason.
type reasonCounts [reasons]uint64

func (c *waitCounts) count(of int, waited time.Duration) {
	class := slices.IndexFunc(waitBounds[:], func(most time.Duration) bool { return waited <= most })
	if class < 0 {
		class = len(waitBounds)
	}
	c[of].classes[class]++
	c[of].sum += max(0, waited)
}

// state is what a snapshot has of the counts.
func (c *waitCounts) state() []figures.WaitCount {
	states := make([]figures.WaitCount, len(outcomes))
	for i := range c {
		s := figures.WaitCount{Outcome: outcomes[i], SumMs: uint64(c[i].sum.Milliseconds())}
		for class, n := range c[i].classes {
			if s.Count += n; class < len(waitBounds) {
				s.UpTo = append(s.UpTo, figures.ClassWait{Ms: uint64(waitBounds[class].Milliseconds()), Count: s.Count})
			}
		}
		states[i] = s
	}
	return states
}

// state is what a snapshot has of the counts.
func (c *reasonCounts) state() []figures.ReasonCount {
	states := make([]figures.ReasonCount, 0, reasons)
	for why := ReasonNone + 1; why < reasons; why++ {
		states = append(states, figures.ReasonCount{Reason: why.String(), Count: c[why]})
	}
	return states
}

// outcome is what became of the request: which of the outcomes.
func (r *Result) outcome() int {
	name := r.Reason.String()
	if r.Granted {
		name = "granted"
	}
	if of := slices.Index(outcomes[:], name); of >= 0 {
		return of
	}
	return len(outcomes) - 1
}
