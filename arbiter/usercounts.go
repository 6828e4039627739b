package arbiter

import (
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/internal/figures"
)

// This file has the counts that are kept for each user: outcomes of requests, and how long requests waited. users.go finds users and
// updates the counts.

// user is a user who has jobs or recently had some, with the counts of the user's requests.
type user struct {
	uid      uint32
	name     string
	jobs     int
	gauge    gauge // pressure of the user
	waits    waitCounts
	refusals reasonCounts
}

// users are the users with jobs, and some users who had jobs.
type users struct {
	byUID map[uint32]*user
	idle  []*user // users without jobs, the one without jobs for longest first
}

// maxIdleUsers is how many users without a job are remembered. It bounds the lists of users and the state file.
const maxIdleUsers = 64

// outcomes are the outcomes of waiting requests, by the names that users see. "refused" includes all other reasons, such as a lowered limit
// or a lost device.
var outcomes = [...]string{"granted", "timeout", "cancelled", "deadlock", "refused"}

// waitBounds are the upper bounds of the classes of waits. One more class has the longer waits.
var waitBounds = [...]time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second, time.Minute, 10 * time.Minute}

// waitCounts counts the waits of requests, by outcome and class.
type waitCounts [len(outcomes)]struct {
	classes [len(waitBounds) + 1]uint64
	sum     time.Duration
}

// reasonCounts counts refused requests by Reason.
type reasonCounts [reasons]uint64

// count counts a request that waited, by the index of its outcome and by its wait.
func (c *waitCounts) count(of int, waited time.Duration) {
	class := slices.IndexFunc(waitBounds[:], func(most time.Duration) bool { return waited <= most })
	if class < 0 {
		class = len(waitBounds)
	}
	c[of].classes[class]++
	c[of].sum += max(0, waited)
}

// state returns the counts for a snapshot.
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

// state returns the counts for a snapshot.
func (c *reasonCounts) state() []figures.ReasonCount {
	states := make([]figures.ReasonCount, 0, reasons)
	for why := ReasonNone + 1; why < reasons; why++ {
		states = append(states, figures.ReasonCount{Reason: why.String(), Count: c[why]})
	}
	return states
}

// outcome returns the index in outcomes of a request's outcome.
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
