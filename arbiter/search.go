package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/arbiter/deadlock"
)

// searchedAtOnce is how many tickets at most are searched for circles by the call after which
// there may be one. Where more wait, a search takes longer than anybody should hold the lock:
// then it is made beside it by [Arbiter.Search], on a copy that is made in parts of as many.
const searchedAtOnce = 64

// searchEvery is how often such a search is begun at most: the more wait the longer one takes.
func (a *Arbiter) searchEvery() time.Duration {
	return min(time.Duration(len(a.tickets))*time.Millisecond, time.Second)
}

// Search is a search for circles of waiters on a copy of the arbiter's state, which may be made in parts
// while others change the state. Who has moved since it began is taken to go on. That leaves fewer in each
// other's way than there are, never more: what is found is a circle, whatever else has changed.
type Search struct {
	graph
	strict bool // now those circles are looked for in which all threads wait
	loose  bool // after these, or now, those in which something might have moved
	moved  map[*job]bool
	torn   bool // something has moved
	found  *deadlock.Finding
}

// moves notes that something of a job is no longer as a search may have copied it.
func (a *Arbiter) moves(j *job) {
	if a.searching != nil {
		a.searching.moved[j] = true
	}
}

// searchAgain ends a search that goes on: another one is to be begun.
func (a *Arbiter) searchAgain() {
	if a.searching != nil {
		a.searching, a.tangled = nil, true
	}
}

// searchDue is when there is one to be made, or to go on with; zero: there is none.
func (a *Arbiter) searchDue() time.Time {
	switch {
	case a.searching != nil:
		return a.searched
	case !a.tangled || len(a.tickets) <= a.atOnce:
		return time.Time{}
	}
	return a.searched.Add(a.searchEvery())
}

// Search returns the search for circles that is to be made, where too many wait for making it at once;
// nil: there is none. First it is to be copied ([Search.Copy]); [Search.Run] is for outside of the lock,
// and what that finds for [Arbiter.Settle].
func (a *Arbiter) Search(now time.Time) *Search {
	if a.Unfinished() {
		return nil
	}
	if len(a.tickets) <= a.atOnce || !now.Before(a.searched.Add(time.Second)) {
		a.searchAgain() // too much may have moved
	}
	due := func(at time.Time) bool { return !at.IsZero() && !now.Before(at) }
	strict, loose := due(a.searchDue()), due(a.looseAt)
	if a.searching != nil || len(a.tickets) <= a.atOnce || !strict && !loose {
		return a.searching
	}
	a.searched, a.tangled = now, a.tangled && !strict
	a.searching = &Search{graph: a.graph(), strict: strict, loose: loose, moved: make(map[*job]bool)}
	return a.searching
}

// Copy copies the next part of the state. False: all is copied.
func (s *Search) Copy(now time.Time) (more bool) {
	if s.a.searching != s || len(s.rest) == 0 {
		return false
	}
	if s.copy(now, max(1, s.a.atOnce)) {
		s.a.serveQueues(now)
	}
	if len(s.rest) == 0 {
		s.a.lookLater(now, s.holding)
	}
	return len(s.rest) > 0
}

// Run searches. It needs no lock.
func (s *Search) Run() {
	if s.Requests == nil {
		s.order()
	}
	if s.found = nil; s.strict {
		s.found = s.Graph.Search(true)
	}
	if s.found == nil && s.loose {
		s.strict, s.found = false, s.Graph.Search(false)
	}
}

// Settle ends the circle that a search found. If there may be another, the search goes on.
func (a *Arbiter) Settle(now time.Time, s *Search) {
	if a.searching != s {
		return
	}
	if a.conclude(now, s) {
		a.serveQueues(now)
		return
	}
	if a.searching = nil; s.torn && a.looseAt.IsZero() && s.loose {
		a.looseAt = now.Add(a.searchEvery())
	}
}

// conclude ends the circle that a search found, if nobody in it has moved. True: there may be another.
func (a *Arbiter) conclude(now time.Time, s *Search) bool {
	if s.outdated() {
		return true
	}
	c := s.circle(s.found)
	if !s.strict {
		return a.settleLoose(now, c)
	}
	return c != nil && a.resolve(now, c)
}

// outdated has those go on who have moved since the copy was begun. True: what was found rests on one of
// them.
func (s *Search) outdated() (yes bool) {
	for j := range s.moved {
		if party, known := s.parties[j]; known {
			s.Parties[party].Moved, s.torn = true, true
			yes = yes || s.found != nil && s.found.Rests[party]
		}
	}
	clear(s.moved)
	return yes
}
