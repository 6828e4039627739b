package arbiter

import (
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// The search for a deadlock. On a copy of the books (copy.go) all jobs that do not wait give back what they hold. Then requests
// are admitted as in a cycle, and the job of each admitted request gives back what it holds, until no request can be
// admitted any more. The requests that are left, of jobs that hold something, wait for each other.
//
// A job counts as waiting if all of its threads wait; after deadlock_grace, if it has a request that waits. Its requests can then wait for
// each other alone only if each of its processes that hold something has one: else the others may yet give back what they wait for.

// searchedAtOnce is up to how many waiting requests a deadlock is looked for by the call after which there may be one. If more
// wait, the daemon makes the search without its lock ([Arbiter.Search]).
const searchedAtOnce = 32

// searchShare is how many times as long as a search without the lock took the next one waits.
const searchShare = 9

// Search is a search for a deadlock on a copy of the books.
type Search struct {
	books  *Arbiter  // the copy
	strict bool      // a job counts as waiting if all of its threads wait
	turn   *ticket   // a request that waits for nothing but its turn, and is to be served; nil: none
	victim *ticket   // the request that is to be refused; nil: none
	others []*ticket // requests that wait for what the process of victim holds; at least one of each job
	began  time.Time
}

// untangle looks for a deadlock, and ends it. True: it did something.
func (a *Arbiter) untangle(now time.Time) bool {
	holding, blocked := false, false
	for _, t := range a.queue {
		if a.holds(t.job) {
			holding, blocked = true, blocked || t.job.blocked()
		}
	}
	switch {
	case !holding: // no request waits for another one
		a.looseAt = time.Time{}
	case a.looseAt.IsZero():
		a.looseAt = now.Add(a.policy.DeadlockGrace)
	}
	if many := len(a.queue) > searchedAtOnce; many || !blocked {
		a.suspected = blocked && (a.suspected || a.moved || now.Sub(a.searchAgain) >= time.Second)
		return false
	}
	a.suspected = false
	return a.searchNow(now, true)
}

// loosen ends deadlocks in which nothing has moved for deadlock_grace.
func (a *Arbiter) loosen(now time.Time) {
	for range 2 + 2*len(a.queue) {
		if a.looseAt.IsZero() || now.Before(a.looseAt) || len(a.queue) > searchedAtOnce || !a.searchNow(now, false) {
			return
		}
		a.changed()
		a.cycle(now)
	}
}

// searchNow looks for a deadlock and ends it. True: it did something.
func (a *Arbiter) searchNow(now time.Time, strict bool) bool {
	if a.dropUnused(now) {
		return true
	}
	s := a.newSearch(now, strict)
	s.Run()
	return a.end(now, s)
}

// searchDue returns when a search for a deadlock is due that no call makes by itself; the zero time: none is.
func (a *Arbiter) searchDue() (due time.Time) {
	if len(a.queue) <= searchedAtOnce {
		return a.looseAt
	}
	if due = a.looseAt; a.suspected {
		due = a.sorted // it is due already
	}
	if !due.IsZero() && due.Before(a.searchAgain) {
		due = a.searchAgain
	}
	return due
}

// Search returns a search that is due if many requests wait; nil: none is due. The caller calls Run without the daemon's
// lock, and then Settle with it.
func (a *Arbiter) Search(now time.Time) *Search {
	loose := !a.looseAt.IsZero() && !now.Before(a.looseAt)
	if len(a.queue) <= searchedAtOnce || now.Before(a.searchAgain) || !a.suspected && !loose {
		return nil
	}
	strict := a.suspected
	a.suspected, a.moved = false, false
	if a.dropUnused(now) {
		a.changed()
		a.cycle(now)
	}
	return a.newSearch(now, strict)
}

// Settle ends the deadlock that a search found, if it still stands. now is when the search ended.
func (a *Arbiter) Settle(now time.Time, s *Search) {
	a.searchAgain = now.Add(searchShare * now.Sub(s.began))
	if s.victim != nil && !a.stands(s) {
		a.suspected = true // something has changed meanwhile
		return
	}
	if a.end(now, s) {
		a.suspected = true // there may be another one
		a.changed()
		a.cycle(now)
	}
}

// newSearch begins a search. It judges all requests anew, because a grant may have left less to a request that was judged earlier.
func (a *Arbiter) newSearch(now time.Time, strict bool) *Search {
	for _, t := range a.queue {
		a.judge(t)
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

// standsStill reports whether several processes of a job hold something, and each of them has a request that waits.
func (j *job) standsStill() bool {
	holding := j.holding()
	return len(holding) > 1 && !slices.ContainsFunc(holding, func(s *session) bool { return len(s.waits) == 0 })
}

// holds reports whether a job has memory in use or reserved, a context or a permit.
func (a *Arbiter) holds(j *job) bool { return j.slots > 0 || !a.holdsNothing(j) }

// dropUnused takes the slots back that waiting jobs have left without a word. True: there were some.
func (a *Arbiter) dropUnused(now time.Time) (dropped bool) {
	for _, t := range a.queue {
		for _, d := range a.devices {
			for _, h := range t.job.holders(d) {
				if !h.kept && !a.busy(h) {
					a.drop(now, h)
					dropped = true
				}
			}
		}
	}
	return dropped
}

// Run searches. It needs no lock.
func (s *Search) Run() {
	keeps := func(j *job) bool { return !j.gaveBack }
	turns := s.books.copy(keeps)
	turns.admitAll(true)
	for _, t := range turns.queue {
		if o := t.original(); !t.job.gaveBack && t.turnOnly && (s.turn == nil || byArrival(o, s.turn) < 0) {
			s.turn = o
		}
	}
	if s.turn != nil {
		return
	}
	s.books.queue = slices.DeleteFunc(s.books.queue, func(t *ticket) bool { return t.job.gaveBack })
	s.books.admitAll(false)
	left := slices.DeleteFunc(slices.Clone(s.books.queue), func(t *ticket) bool { return t.job.gaveBack })
	slices.SortFunc(left, func(x, y *ticket) int { return byArrival(y, x) })
	for _, t := range left {
		if s.others = s.waitFor(t, s.books.letsGoOn(t)); s.others != nil {
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

// waitFor returns the live requests of those in all, of a copy, that wait for t; nil: none. Requests of the job of t count only if
// all of that job waits.
func (s *Search) waitFor(t *ticket, all []*ticket) (others []*ticket) {
	for _, x := range all {
		if x.job != t.job || s.strict || t.job.still {
			others = append(others, x.original())
		}
	}
	return others
}

// admitAll admits requests of a copy until none can be admitted. inTurn: no request is admitted that an earlier one blocks.
func (a *Arbiter) admitAll(inTurn bool) {
	for again := true; again; {
		again = false
		a.clearLines()
		for _, t := range slices.Clone(a.queue) {
			a.noteSince(t)
			v := a.judge(t)
			switch {
			case v.final || v.spot != nil:
				a.queue = slices.DeleteFunc(a.queue, func(x *ticket) bool { return x == t })
				if !t.job.gaveBack {
					a.giveBack(t.job)
				}
				again = true
			case inTurn:
				for i := range t.spots {
					a.bar(a.sorted, t, &t.spots[i])
				}
			}
		}
	}
}

// letsGoOn returns the requests that go on if the process of a request that is left gives back what it holds.
func (a *Arbiter) letsGoOn(t *ticket) (others []*ticket) {
	c := a.copy(func(j *job) bool { return !j.gaveBack })
	i := slices.Index(a.queue, t)
	of, in := c.queue[i].session, c.queue[i].job
	c.queue = slices.DeleteFunc(c.queue, func(x *ticket) bool { return x.job == in && x.session == of })
	if of == nil {
		c.giveBack(in)
	} else {
		c.giveBack(in, of)
	}
	before := slices.Clone(c.queue)
	c.admitAll(false)
	for _, x := range before {
		if !slices.Contains(c.queue, x) {
			others = append(others, a.queue[slices.IndexFunc(a.queue, func(t *ticket) bool { return t.original() == x.original() })])
		}
	}
	return others
}

// stands reports whether the deadlock that a search found still stands: with what the jobs of its requests hold now, and without
// what all others hold, none of them can be served.
func (a *Arbiter) stands(s *Search) bool {
	in := map[*job]bool{s.victim.job: true}
	for _, t := range s.others {
		in[t.job] = true
	}
	if s.victim.done || slices.ContainsFunc(s.others, func(t *ticket) bool { return t.done }) {
		return false
	}
	c := a.copy(func(j *job) bool { return in[j] && a.counts(j, s.strict) })
	c.queue = slices.DeleteFunc(c.queue, func(t *ticket) bool { return t.job.gaveBack })
	c.admitAll(false)
	return slices.ContainsFunc(c.queue, func(t *ticket) bool { return t.original() == s.victim })
}

// end ends the deadlock that a search found. True: it did something.
func (a *Arbiter) end(now time.Time, s *Search) bool {
	if !s.strict {
		if s.turn == nil && s.victim == nil {
			a.looseAt = time.Time{}
			return false
		}
		if since := s.moved(); now.Sub(since) < a.policy.DeadlockGrace {
			a.looseAt = since.Add(a.policy.DeadlockGrace)
			return false
		}
	}
	switch {
	case s.victim != nil:
		a.refuseVictim(now, s)
		return true
	case s.turn != nil && a.serveOutOfTurn(now, s.turn):
		return true
	case s.turn != nil && !s.strict:
		a.looseAt = now.Add(a.policy.DeadlockGrace)
	}
	return false
}

// moved returns when something of the requests of a deadlock last moved.
func (s *Search) moved() (last time.Time) {
	all := s.others
	if s.turn != nil {
		all = []*ticket{s.turn}
	} else {
		all = append([]*ticket{s.victim}, all...)
	}
	for _, t := range all {
		for _, when := range [...]time.Time{t.parked, t.job.moved} {
			if when.After(last) {
				last = when
			}
		}
	}
	return last
}

// serveOutOfTurn serves a request that waits for nothing but its turn, behind others that wait for what its job holds. True: it was served.
func (a *Arbiter) serveOutOfTurn(now time.Time, t *ticket) bool {
	if t.done {
		return false
	}
	a.judge(t)
	for i := range t.spots {
		if s := &t.spots[i]; s.hard == 0 && t.onlyBehind() {
			return a.serve(now, t, s)
		}
	}
	return false
}

// refuseVictim refuses the youngest request of a deadlock.
func (a *Arbiter) refuseVictim(now time.Time, s *Search) {
	all := []*ticket{s.victim}
	for _, t := range s.others { // one of each job, the victim's own among them
		if !slices.ContainsFunc(all, func(x *ticket) bool { return x.job == t.job }) && a.holds(t.job) {
			all = append(all, t)
		}
	}
	text := a.explainDeadlock(all)
	a.stats.Deadlocks++
	e := a.eventOf(now, s.victim, EventDeadlock, text)
	e.Parties = a.parties(all)
	a.event(e)
	a.refuseTicket(now, s.victim, ReasonDeadlock, s.victim.why.refusal, text)
}

// committed is what a job's living processes hold on a device, or what is reserved for it.
func (j *job) committed(d *device) accounting.Bytes {
	return max(j.held(d), j.limits(d).Least())
}

// held is what a job's living processes hold on a device.
func (j *job) held(d *device) (held accounting.Bytes) {
	for _, s := range j.sessions {
		held = held.Plus(s.held(d))
	}
	return held
}

// away returns how many of the bytes that a job's living processes hold are managed memory that is away from the device.
func (j *job) away(d *device) (away accounting.Bytes) {
	for _, s := range j.sessions {
		if l := s.leaseOn(d); l != nil && s.alive() {
			away = away.Plus(l.Away())
		}
	}
	return away
}

// held is what a process holds on a device, as long as it lives.
func (s *session) held(d *device) accounting.Bytes {
	if l := s.leaseOn(d); l != nil && s.alive() {
		return l.Granted().Plus(l.Charged())
	}
	return 0
}

// holding returns the processes of a job that hold something.
func (j *job) holding() (holding []*session) {
	for _, s := range j.sessions {
		if s.alive() && s.holds() {
			holding = append(holding, s)
		}
	}
	return holding
}

// holds reports whether a process has anything that others could wait for.
func (s *session) holds() bool {
	return slices.ContainsFunc(s.leases, func(l *lease) bool {
		return !l.lost && (s.budget.Account(l.device.Index).Committed > 0 || l.contexts > 0 || l.Streams() > 0 || l.holds > 0)
	})
}

// holders returns the permits that a job, its processes and their threads have on a device.
func (j *job) holders(d *device) (all []*holder) {
	if j.slots == 0 {
		return nil
	}
	add := func(o owner) {
		if h := d.holder(o); h != nil {
			all = append(all, h)
		}
	}
	add(owner{Job: j})
	for _, s := range j.sessions {
		add(owner{Job: j, Process: s})
		for _, l := range s.leases {
			for thread := range l.makers.All() {
				if l.device == d && thread != 0 {
					add(owner{Job: j, Process: s, Thread: thread})
				}
			}
		}
	}
	return all
}
