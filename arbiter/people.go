package arbiter

import (
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/figures"
)

// person is a user of whom a job is there, or was: what has come of all of his requests.
type person struct {
	uid      uint32
	name     string
	jobs     int
	gauge    gauge // of his pressure
	waits    waitCounts
	refusals reasonCounts
}

// people are the users that are remembered: those that have jobs, and the last that had one.
type people struct {
	of   map[uint32]*person
	idle []*person // those without jobs, by how long they are so
}

// maxIdlePeople is how many users without a job are remembered: so whatever lists users, and the state file, is bounded by
// the bounds on jobs.
const maxIdlePeople = 64

// person is who has the user number, known from now on where he was not.
func (a *Arbiter) person(uid uint32, name string) *person {
	p := a.people.of[uid]
	if p == nil {
		p = &person{uid: uid}
		a.people.of[uid] = p
		a.idles(p)
	}
	if name != "" {
		p.name = name
	}
	return p
}

// idles is for a user who has no job, or none any more: of too many of those the one that had none for longest is forgotten.
func (a *Arbiter) idles(p *person) {
	idle := append(a.people.idle, p)
	if len(idle) > maxIdlePeople {
		delete(a.people.of, idle[0].uid)
		idle = slices.Delete(idle, 0, 1)
	}
	a.people.idle = idle
}

// joins is for a job that is new: whose it is.
func (a *Arbiter) joins(j *job) {
	p := a.person(j.request.Process.UID, j.request.Process.User)
	if p.jobs == 0 {
		a.people.idle = slices.DeleteFunc(a.people.idle, func(x *person) bool { return x == p })
	}
	p.jobs++
	j.person = p
}

// leaves is for a job that is no more.
func (a *Arbiter) leaves(j *job) {
	if j.person.jobs--; j.person.jobs == 0 {
		a.idles(j.person)
	}
}

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

// countWait counts a request of a user's that waited, and what became of it.
func (a *Arbiter) countWait(p *person, answer *Result, waited time.Duration) {
	of := answer.outcome()
	a.waits.count(of, waited)
	p.waits.count(of, waited)
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

// countRefusal counts a request of a user's that was refused.
func (a *Arbiter) countRefusal(p *person, why Reason) {
	a.refusals[why]++
	p.refusals[why]++
}
