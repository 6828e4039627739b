package arbiter

import (
	"slices"
	"time"
)

// This file searches for deadlocks: requests that wait for memory or permits which the jobs of other such requests hold. cycle.go calls
// breakDeadlock at the end of each cycle. search.go has the search that runs without the daemon's lock.
//
// The search works on a copy of the state (copy.go). There, all jobs that do not count as waiting release what they hold. Then requests are
// admitted as in a cycle, and the job of each admitted request releases what it holds, until no request can be admitted. The remaining
// requests whose jobs hold something wait for each other.
//
// A strict search may run at any time: a job counts as waiting if all of its threads wait. In a loose search, a job counts as waiting if
// one of its requests waits. A loose search runs at looseSearchAt. Its result counts only if the jobs of the deadlock have been inactive for
// deadlock_grace: none of their requests began to wait, and none of their clients asked for or freed anything. In a loose search, requests
// of the same job are a deadlock among themselves only if each process of the job that holds something has a waiting request, because the
// other processes may still free what the requests wait for.

// searchedAtOnce is the largest number of waiting requests for which each cycle searches itself. With more requests that takes too long
// under the daemon's lock, and the daemon searches without the lock ([Arbiter.Search]).
const searchedAtOnce = 32

// searchShare limits the time spent on searches. After a search without the lock, the next one begins no sooner than searchShare times its
// duration, so that searches use at most a tenth of a processor.
const searchShare = 9

// Search is a search for a deadlock on a copy of the arbiter's state.
type Search struct {
	state   *Arbiter  // the copy
	strict  bool      // a job counts as waiting only if all of its threads wait
	blocked *ticket   // live request that fits, but is blocked by earlier requests, which wait for what its own job holds; nil: none
	victim  *ticket   // live request to be refused; nil: none
	others  []*ticket // other live requests of the deadlock, or those that wait for what victim's process holds
	began   time.Time
}

// breakDeadlock sets looseSearchAt, and searches if few requests wait: first strictly, then loosely if a loose search is due. If many
// requests wait, it only notes that a strict search is due (suspected). It returns true if it broke a deadlock or dropped unused slots.
func (a *Arbiter) breakDeadlock(now time.Time) bool {
	holding, blocked := false, false
	for _, t := range a.queue {
		if a.holds(t.job) {
			holding, blocked = true, blocked || t.job.blocked()
		}
	}
	switch {
	case !holding: // no waiting job holds anything that another job could wait for
		a.looseSearchAt = time.Time{}
	case a.looseSearchAt.IsZero():
		a.looseSearchAt = now.Add(a.policy.DeadlockGrace)
	}
	if len(a.queue) > searchedAtOnce {
		// Search after a noted change. Clients also free memory into their credit words without a call, so search in any case if the last
		// search ended a second ago.
		a.suspected = blocked && (a.suspected || a.searchNeeded || now.Sub(a.searchAgain) >= time.Second)
		return false
	}
	a.suspected = false
	return blocked && a.searchNow(now, true) || a.looseDue(now) && a.searchNow(now, false)
}

// looseDue reports whether a loose search is due.
func (a *Arbiter) looseDue(now time.Time) bool {
	return !a.looseSearchAt.IsZero() && !now.Before(a.looseSearchAt)
}

// searchNow searches for a deadlock and breaks it. It returns true if it changed something.
func (a *Arbiter) searchNow(now time.Time, strict bool) bool {
	if a.dropSlotsOfWaiting(now) {
		return true
	}
	s := a.newSearch(now, strict)
	s.Run()
	return a.carryOut(now, s)
}

// searchDue returns when the daemon must call Tick (if few requests wait) or Search (if many wait) for the next search. The zero time means
// never.
func (a *Arbiter) searchDue() (due time.Time) {
	switch {
	case a.searching:
		return time.Time{}
	case len(a.queue) <= searchedAtOnce:
		return a.looseSearchAt
	}
	if due = a.looseSearchAt; a.suspected {
		due = a.sorted // time of the last sort of the queue, which is past: the search is due now
	}
	if !due.IsZero() && due.Before(a.searchAgain) {
		due = a.searchAgain
	}
	return due
}

// newSearch begins a search with a copy of the state. It first evaluates all requests, because the copy needs to know which requests are
// only blocked by earlier ones, and a grant since the last evaluation may have left less room.
func (a *Arbiter) newSearch(now time.Time, strict bool) *Search {
	for _, t := range a.queue {
		a.evaluate(t)
	}
	return &Search{state: a.copy(func(j *job) bool { return a.counts(j, strict) }), strict: strict, began: now}
}

// counts reports whether a job counts as waiting. A suspended job does not count if its return is its only waiting request, because its
// processes continue.
func (a *Arbiter) counts(j *job, strict bool) bool {
	if !a.holds(j) || a.returning(j) != nil && len(j.tickets) == 1 {
		return false
	}
	return !strict || j.blocked()
}

// dropSlotsOfWaiting drops the slots of waiting jobs that no object of the job needs any more, even if the client sent no message about
// that. It returns true if it dropped any.
func (a *Arbiter) dropSlotsOfWaiting(now time.Time) (dropped bool) {
	for _, t := range a.queue {
		for _, d := range a.devices {
			for _, h := range t.job.holders(d) {
				if !h.kept && !a.inUse(h) {
					a.dropSlot(now, h)
					dropped = true
				}
			}
		}
	}
	return dropped
}

// Run searches on the copy only, so that it needs no lock. It first looks for a request that fits and is blocked only by earlier requests,
// which themselves wait for what the job of that request holds (blocked). If there is none, it admits requests regardless of their order, until the remaining ones wait for each
// other. victim becomes the youngest request whose process holds enough to let another request be admitted. If there is no such request,
// victim becomes the youngest of all remaining requests.
func (s *Search) Run() {
	s.state.try(func() {
		s.state.admitAll(true)
		for _, t := range s.state.queue {
			if o := t.original(); !t.job.releasedAll && t.onlyBlocked && t.kind != wantsReturn && (s.blocked == nil || byArrival(o, s.blocked) < 0) {
				s.blocked = o
			}
		}
	})
	if s.blocked != nil {
		return
	}
	s.state.queue = slices.DeleteFunc(s.state.queue, func(t *ticket) bool { return t.job.releasedAll })
	s.state.admitAll(false)
	left := slices.DeleteFunc(slices.Clone(s.state.queue), func(t *ticket) bool { return t.job.releasedAll || t.kind == wantsReturn })
	slices.SortFunc(left, func(x, y *ticket) int { return byArrival(y, x) })
	for _, t := range left {
		if s.others = s.waitFor(t, s.state.admittedWithout(t)); s.others != nil {
			s.victim = t.original()
			return
		}
	}
	for _, t := range left {
		if s.others = s.waitFor(t, left); s.others != nil {
			s.victim = t.original()
			return
		}
	}
}

// waitFor returns the live requests of the copies in all; nil: none. It omits requests of t's own job, unless the search is strict or each
// process of that job that holds something waits (allWait).
func (s *Search) waitFor(t *ticket, all []*ticket) (others []*ticket) {
	for _, x := range all {
		if x.job != t.job || s.strict || t.job.allWait {
			others = append(others, x.original())
		}
	}
	return others
}

// admitAll removes the requests from the queue of a copy that fit or can never fit, and releases what their jobs hold, until no remaining
// request fits. With inTurn, a request that an earlier request blocks does not fit. If the return of a suspended job fits, the job releases
// nothing, because none of its processes waits for that.
func (a *Arbiter) admitAll(inTurn bool) {
	for again := true; again; {
		again = false
		a.clearBlockers()
		for _, t := range slices.Clone(a.queue) {
			if inTurn {
				a.noteHeldSince(t)
			}
			v := a.evaluate(t)
			switch {
			case v.final || v.fits != nil:
				a.queue = slices.DeleteFunc(a.queue, func(x *ticket) bool { return x == t })
				if !t.job.releasedAll && t.kind != wantsReturn {
					a.releaseHoldings(t.job)
				}
				again = true
			case inTurn:
				a.blockLater(a.sorted, t)
			}
		}
	}
}

// admittedWithout returns the requests of this copy that could be admitted if the process of t released what it holds; if t is the request
// of a job, if that job did. It undoes its changes to the copy.
func (a *Arbiter) admittedWithout(t *ticket) (others []*ticket) {
	a.try(func() {
		a.queue = slices.DeleteFunc(a.queue, func(x *ticket) bool { return x.job == t.job && x.session == t.session })
		before := slices.Clone(a.queue)
		if t.session == nil {
			a.releaseHoldings(t.job)
		} else {
			a.releaseHoldings(t.job, t.session)
		}
		a.admitAll(false)
		left := a.queue // in the order of before
		for _, x := range before {
			if len(left) > 0 && left[0] == x {
				left = left[1:]
			} else {
				others = append(others, x)
			}
		}
	})
	return others
}

// stillStands reports whether the deadlock that a search found still exists: none of its requests has been decided, and the victim cannot
// be admitted on a new copy in which only the jobs of these requests hold anything.
func (a *Arbiter) stillStands(s *Search) bool {
	in := map[*job]bool{s.victim.job: true}
	for _, t := range s.others {
		in[t.job] = true
	}
	if s.victim.done || slices.ContainsFunc(s.others, func(t *ticket) bool { return t.done }) {
		return false
	}
	c := a.copy(func(j *job) bool { return in[j] && a.counts(j, s.strict) })
	c.queue = slices.DeleteFunc(c.queue, func(t *ticket) bool { return t.job.releasedAll })
	c.admitAll(false)
	return slices.ContainsFunc(c.queue, func(t *ticket) bool { return t.original() == s.victim })
}

// carryOut acts on the result of a search: it refuses the victim, or serves the request that only earlier requests blocked. It returns true
// if it did. After a loose search it acts only if no job of the deadlock was active for deadlock_grace; else it sets a later looseSearchAt.
func (a *Arbiter) carryOut(now time.Time, s *Search) bool {
	if !s.strict {
		if s.blocked == nil && s.victim == nil {
			a.looseSearchAt = time.Time{}
			return false
		}
		if since := s.lastActive(); now.Sub(since) < a.policy.DeadlockGrace {
			a.looseSearchAt = since.Add(a.policy.DeadlockGrace)
			return false
		}
	}
	switch {
	case s.victim != nil:
		a.refuseVictim(now, s)
		return true
	case s.blocked != nil && a.serveOutOfTurn(now, s.blocked):
		return true
	case s.blocked != nil && !s.strict:
		a.looseSearchAt = now.Add(a.policy.DeadlockGrace)
	}
	return false
}

// lastActive returns the latest time at which a request of the deadlock began to wait, or its job asked for or freed something.
func (s *Search) lastActive() (last time.Time) {
	all := s.others
	if s.blocked != nil {
		all = []*ticket{s.blocked}
	} else {
		all = append([]*ticket{s.victim}, all...)
	}
	for _, t := range all {
		for _, when := range [...]time.Time{t.waitingSince, t.job.lastActive} {
			if when.After(last) {
				last = when
			}
		}
	}
	return last
}

// serveOutOfTurn serves a request that fits before the earlier requests that block it, because these wait for what its job holds. It
// returns false if the request does not fit any more.
func (a *Arbiter) serveOutOfTurn(now time.Time, t *ticket) bool {
	if t.done || t.absent() {
		return false
	}
	a.evaluate(t)
	for i := range t.candidates {
		if s := &t.candidates[i]; !s.lacks(refusingLimit.hasNoRoom) && t.fitsButBlocked() {
			return a.serve(now, t, s)
		}
	}
	return false
}

// refuseVictim refuses the victim of a search. The message and the event name one request of each job of the deadlock.
func (a *Arbiter) refuseVictim(now time.Time, s *Search) {
	all := []*ticket{s.victim}
	for _, t := range s.others { // the first request of each job; the victim stands for its own job
		if !slices.ContainsFunc(all, func(x *ticket) bool { return x.job == t.job }) && a.holds(t.job) {
			all = append(all, t)
		}
	}
	text := a.explainDeadlock(all)
	a.stats.Deadlocks++
	e := a.eventOf(now, s.victim, EventDeadlock, text)
	e.Parties = a.parties(all)
	a.event(e)
	a.refuseTicket(now, s.victim, ReasonDeadlock, text)
}
