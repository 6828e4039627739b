package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/arbiter/deadlock"
)

// searchedAtOnce is how many tickets at most are searched for circles by the call after which
// there may be one. Where more wait, a search takes longer than anybody should hold the lock:
// then it is made on a copy, at most every searchEvery, by [Arbiter.Search].
const (
	searchedAtOnce = 256
	searchEvery    = time.Second
)

// mostOutdated is how many searches in a row may come too late: the next one is made at once.
const mostOutdated = 3

// Search is a search for circles of waiters on a copy of the arbiter's state.
type Search struct {
	graph   *graph
	strict  bool
	changes uint64
	found   *deadlock.Finding
}

// searchDue is when there is one to be made; zero: there is none.
func (a *Arbiter) searchDue() time.Time {
	if !a.tangled || len(a.tickets) <= searchedAtOnce {
		return time.Time{}
	}
	return a.searched.Add(searchEvery)
}

// Search copies what a search for circles needs, where one is due and too many wait for making
// it at once; nil: there is none to be made. Its [Search.Run] is for outside of the lock, and what
// that finds for [Arbiter.Settle].
func (a *Arbiter) Search(now time.Time) *Search {
	if len(a.tickets) <= searchedAtOnce {
		return nil
	}
	strict := a.tangled && !now.Before(a.searchDue())
	loose := !a.looseAt.IsZero() && !now.Before(a.looseAt)
	if !strict && !loose {
		return nil
	}
	a.searched = now
	if strict = strict && a.isTangled(now); !strict && !loose {
		return nil
	}
	if a.refresh(now) {
		a.turn(now)
	}
	s := &Search{graph: a.graph(now, strict), strict: strict, changes: a.changes}
	if a.outdated >= mostOutdated {
		s.Run()
		a.Settle(now, s)
		return nil
	}
	return s
}

// Run searches. It needs no lock.
func (s *Search) Run() { s.found = s.graph.Search() }

// Settle ends the circle that a search found, if nothing has changed since: where something has,
// the search is made once more.
func (a *Arbiter) Settle(now time.Time, s *Search) {
	c := s.graph.circle(s.found)
	switch {
	case a.changes != s.changes:
		if c != nil { // it may be there still
			a.outdated++
			a.tangled = a.tangled || s.strict
		} else if !s.strict {
			a.looseAt = now.Add(a.policy.DeadlockGrace)
		}
		return
	case !s.strict:
		a.resolveLoose(now, c)
	case c != nil && a.resolve(now, c):
		a.tangled, a.searched = true, time.Time{} // there may be another
		a.turn(now)
	}
	a.outdated = 0
}
