package arbiter

import (
	"slices"
	"time"
)

// The search for a deadlock. On a copy of the arbiter's books (copy.go) all jobs that do not count as waiting give back what they hold. Then
// requests are admitted as in a cycle, and the job of each admitted request gives back what it holds, until no request can be
// admitted any more. The requests that are left, of jobs that hold something, wait for each other.
//
// There are two kinds of search. A strict search may be made at any time: a job counts as waiting if all of its threads wait. A loose search is
// made when nothing has moved for deadlock_grace (looseAt): a job counts as waiting if one of its requests waits. In a loose search
// the requests of one job count as a deadlock among themselves only if each process of the job that holds something has a waiting request,
// because a process without a waiting request may still give back what the requests wait for.

// If at most searchedAtOnce requests wait, each cycle searches itself. If more wait, that would take too long under the
// daemon's lock: the daemon then searches without its lock ([Arbiter.Search]).
const searchedAtOnce = 32

// After a search without the lock the next search begins no sooner than searchShare times the duration of that search, so that searching uses
// at most a tenth of a processor.
const searchShare = 9

// Search is a search for a deadlock on a copy of the books.
type Search struct {
	books   *Arbiter  // the copy
	strict  bool      // only jobs all of whose threads wait count as waiting
	blocked *ticket   // live request to be served: it fits, but earlier requests, which wait for its job, block it; nil: none
	victim  *ticket   // live request to be refused; nil: none
	others  []*ticket // the other live requests of the deadlock, or those that wait for what the process of victim holds
	began   time.Time
}

// breakDeadlock sets when the next loose search is due (looseAt). If few requests wait, it makes a strict search, and then a loose search if
// that is due. If many wait it only notes that a strict search is due (suspected). True: it ended a deadlock, or took back unused slots.
func (a *Arbiter) breakDeadlock(now time.Time) bool {
	holding, blocked := false, false
	for _, t := range a.queue {
		if a.holds(t.job) {
			holding, blocked = true, blocked || t.job.blocked()
		}
	}
	switch {
	case !holding: // no waiting job holds anything for which another could wait
		a.looseSearchAt = time.Time{}
	case a.looseSearchAt.IsZero():
		a.looseSearchAt = now.Add(a.policy.DeadlockGrace)
	}
	if len(a.queue) > searchedAtOnce {
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

// searchNow looks for a deadlock and ends it. True: it did something.
func (a *Arbiter) searchNow(now time.Time, strict bool) bool {
	if a.dropSlotsOfWaiting(now) {
		return true
	}
	s := a.newSearch(now, strict)
	s.Run()
	return a.carryOut(now, s)
}

// searchDue returns when the daemon must call Tick (if few requests wait) or Search (if many wait) for the next search; the zero time: not at all.
func (a *Arbiter) searchDue() (due time.Time) {
	switch {
	case a.searching:
		return time.Time{}
	case len(a.queue) <= searchedAtOnce:
		return a.looseSearchAt
	}
	if due = a.looseSearchAt; a.suspected {
		due = a.sorted // in the past: the search is due already
	}
	if !due.IsZero() && due.Before(a.searchAgain) {
		due = a.searchAgain
	}
	return due
}

// newSearch begins a search with a copy of the books. It judges all requests first, because the copy takes from the last verdict whether only
// earlier requests block a request, and a grant since that verdict may have left less room.
func (a *Arbiter) newSearch(now time.Time, strict bool) *Search {
	for _, t := range a.queue {
		a.evaluate(t)
	}
	return &Search{books: a.copy(func(j *job) bool { return a.counts(j, strict) }), strict: strict, began: now}
}

// counts reports whether a job counts as waiting.
func (a *Arbiter) counts(j *job, strict bool) bool {
	if !a.holds(j) {
		return false
	}
	return !strict || j.blocked()
}

// dropSlotsOfWaiting takes back those slots of waiting jobs that none of the job's objects needs any more, even if no message of the client said so.
// True: it took some back.
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

// Run searches on the copy only, so that it needs no lock. First it looks for a request that fits and is blocked only by earlier requests
// that wait for its job (turn). If there is none, it admits requests without regard to their order, until those that are left wait for each
// other. victim becomes the youngest of these whose process holds enough to let another request be admitted; if there is
// none, the youngest of all that are left.
func (s *Search) Run() {
	s.books.try(func() {
		s.books.admitAll(true)
		for _, t := range s.books.queue {
			if o := t.original(); !t.job.releasedAll && t.onlyBlocked && (s.blocked == nil || byArrival(o, s.blocked) < 0) {
				s.blocked = o
			}
		}
	})
	if s.blocked != nil {
		return
	}
	s.books.queue = slices.DeleteFunc(s.books.queue, func(t *ticket) bool { return t.job.releasedAll })
	s.books.admitAll(false)
	left := slices.DeleteFunc(slices.Clone(s.books.queue), func(t *ticket) bool { return t.job.releasedAll })
	slices.SortFunc(left, func(x, y *ticket) int { return byArrival(y, x) })
	for _, t := range left {
		if s.others = s.waitFor(t, s.books.admittedWithout(t)); s.others != nil {
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

// waitFor returns the live requests of which those in all are copies; nil: none. It leaves out requests of t's own job, unless the search is strict
// or each process of that job that holds something waits (still).
func (s *Search) waitFor(t *ticket, all []*ticket) (others []*ticket) {
	for _, x := range all {
		if x.job != t.job || s.strict || t.job.allWait {
			others = append(others, x.original())
		}
	}
	return others
}

// admitAll removes from the queue of a copy the requests that fit or are refused for good, and gives back what their jobs hold, until no
// request that is left fits. inTurn: a request that an earlier request blocks does not count as fitting.
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
				if !t.job.releasedAll {
					a.giveBack(t.job)
				}
				again = true
			case inTurn:
				a.blockLater(a.sorted, t)
			}
		}
	}
}

// admittedWithout returns the requests of this copy that could be admitted if the process of t gave back what it holds; if t is a request for a job, if
// that job did. At the end it undoes what it changed in the copy.
func (a *Arbiter) admittedWithout(t *ticket) (others []*ticket) {
	a.try(func() {
		a.queue = slices.DeleteFunc(a.queue, func(x *ticket) bool { return x.job == t.job && x.session == t.session })
		before := slices.Clone(a.queue)
		if t.session == nil {
			a.giveBack(t.job)
		} else {
			a.giveBack(t.job, t.session)
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

// stillStands reports whether the deadlock that a search found still stands: none of its requests has been decided, and the victim cannot be
// admitted on a new copy in which only the jobs of these requests hold anything.
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

// carryOut carries out what a search found: it refuses the victim, or serves the request that only earlier requests blocked. True: it did. The result of a
// loose search is carried out only if none of its requests has moved for deadlock_grace; else end sets a later looseAt.
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

// lastActive returns the latest time at which a request of the deadlock began to wait, or the job of one asked for or freed something.
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

// serveOutOfTurn serves a request that fits before the earlier requests that block it, because those wait for what its job holds. False: it
// does not fit any more.
func (a *Arbiter) serveOutOfTurn(now time.Time, t *ticket) bool {
	if t.done || t.absent() {
		return false
	}
	a.evaluate(t)
	for i := range t.candidates {
		if s := &t.candidates[i]; !s.lacks(refusingLimit.hasNoRoom) && t.onlyBehind() {
			return a.serve(now, t, s)
		}
	}
	return false
}

// refuseVictim refuses the request that a search chose, and names in the message and the event one request of each job of the deadlock.
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
