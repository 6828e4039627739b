package arbiter

import "time"

// This file has the search for a deadlock that the daemon makes without its lock if many requests wait. deadlock.go has the search itself.

// Search begins a search without the lock, or returns nil if no search is due, few requests wait, or a search is running. The caller holds
// the daemon's lock. It releases the lock, calls Run, takes the lock again, and calls Settle. All other methods of the arbiter may be
// called while Run runs.
func (a *Arbiter) Search(now time.Time) *Search {
	if a.searching || len(a.queue) <= searchedAtOnce || now.Before(a.searchAgain) || !a.suspected && !a.looseDue(now) {
		return nil
	}
	strict := a.suspected && !(a.searchedStrict && a.looseDue(now)) // if both kinds are due, they alternate
	a.suspected, a.searchNeeded, a.searchedStrict = a.suspected && !strict, false, strict
	if a.dropSlotsOfWaiting(now) {
		a.changed()
		a.cycle(now)
	}
	a.searching = true
	return a.newSearch(now, strict)
}

// Settle breaks the deadlock that a search found, if it still exists. now is the end of the search.
func (a *Arbiter) Settle(now time.Time, s *Search) {
	a.searching, a.searchAgain = false, now.Add(searchShare*now.Sub(s.began))
	if s.victim != nil && !a.stillStands(s) {
		a.suspected = true // the state has changed during the search
		return
	}
	if a.carryOut(now, s) {
		a.suspected = true // there may be another deadlock
		a.changed()
		a.cycle(now)
	}
}
