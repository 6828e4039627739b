package arbiter

import "time"

// This file has the search for a deadlock that the daemon makes without its lock when many requests wait. deadlock.go has the search itself.

// Search begins a search without the lock if one is due. nil: none is due, few requests wait, or a search is being made. The caller
// holds the daemon's lock; it gives the lock back, calls Run, takes the lock again and calls Settle. While Run runs, all other
// methods of the arbiter may be called.
func (a *Arbiter) Search(now time.Time) *Search {
	if a.searching || len(a.queue) <= searchedAtOnce || now.Before(a.searchAgain) || !a.suspected && !a.looseDue(now) {
		return nil
	}
	strict := a.suspected && !(a.searchedStrict && a.looseDue(now)) // if both are due they take turns
	a.suspected, a.searchNeeded, a.searchedStrict = a.suspected && !strict, false, strict
	if a.dropSlotsOfWaiting(now) {
		a.changed()
		a.cycle(now)
	}
	a.searching = true
	return a.newSearch(now, strict)
}

// Settle ends the deadlock that a search found, if it still stands. now is when the search ended.
func (a *Arbiter) Settle(now time.Time, s *Search) {
	a.searching, a.searchAgain = false, now.Add(searchShare*now.Sub(s.began))
	if s.victim != nil && !a.stillStands(s) {
		a.suspected = true // something has changed meanwhile
		return
	}
	if a.carryOut(now, s) {
		a.suspected = true // there may be another one
		a.changed()
		a.cycle(now)
	}
}
