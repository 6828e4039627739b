package arbiter

import (
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// untangle looks whether waiters wait for each other, and helps: whoever only waits for
// his turn behind somebody who waits for him is served out of turn; in a true circle the
// youngest is refused. True: it did something.
//
// It lets everybody who goes on finish in thought and give back what he holds, then
// everybody who can be served by that, and so on. Who is left waits for nobody but those
// who are left. Parties are jobs: one goes on when a thread of it is not known to wait.
// Where every thread of all that are left waits, it is decided at once; where there are
// threads elsewhere ([Arbiter.loosen]), after nothing of it has moved for deadlock_grace.
func (a *Arbiter) untangle(now time.Time) bool {
	holding, blocked := false, false
	for _, t := range a.queue {
		if t.holding() {
			holding, blocked = true, blocked || t.job.blocked()
		}
	}
	a.lookLater(now, holding)
	return blocked && a.search(now, true)
}

// search looks for a circle of waiters, and ends it. True: it did something. strict: a job goes on of which a thread does not wait.
func (a *Arbiter) search(now time.Time, strict bool) bool {
	g := a.graph()
	if g.copy(now) {
		return true
	}
	g.order()
	c := g.circle(g.Search(strict))
	if !strict {
		return a.settleLoose(now, c)
	}
	return c != nil && a.resolve(now, c)
}

// lookLater has a circle in which something might have moved be looked for, where somebody waits who
// holds something. Who holds nothing is in nobody's way.
func (a *Arbiter) lookLater(now time.Time, holding bool) {
	switch {
	case !holding:
		a.looseAt = time.Time{}
	case a.looseAt.IsZero():
		a.looseAt = now.Add(a.policy.DeadlockGrace)
	}
}

// refresh judges a ticket anew: what others were given since may have put more in its
// way. True: it did, and the queues are to be gone through again.
func (a *Arbiter) refresh(now time.Time, t *ticket) (changed bool) {
	at, turn := t.at(), t.onlyBehind()
	a.judge(t)
	return t.at() != at || t.onlyBehind() != turn
}

// loosen ends the circles in which something might have moved, and nothing has.
func (a *Arbiter) loosen(now time.Time) {
	for range 2 + 2*len(a.tickets) {
		if a.looseAt.IsZero() || now.Before(a.looseAt) || !a.search(now, false) {
			return
		}
		a.changed()
		a.cycle(now)
	}
}

// settleLoose ends a circle in which something might have moved. True: there may be another.
func (a *Arbiter) settleLoose(now time.Time, c *circle) bool {
	if c == nil {
		a.looseAt = time.Time{}
		return false
	}
	if since := c.moved(); now.Sub(since) < a.policy.DeadlockGrace {
		a.looseAt = since.Add(a.policy.DeadlockGrace)
		return false
	}
	if !a.resolve(now, c) {
		a.looseAt = now.Add(a.policy.DeadlockGrace)
		return false
	}
	return true
}

// holding reports whether a ticket's job has bytes or a slot somewhere.
func (t *ticket) holding() bool { return !t.fresh || t.job.slots > 0 }

// circle is who waits for each other: nil where nobody does.
type circle struct {
	out  *ticket   // to be served out of turn; nil: none
	path []*ticket // a true circle: the youngest of it, and the way from that one's job back to it
}

// moved tells when something of a circle last moved.
func (c *circle) moved() (last time.Time) {
	all := c.path
	if c.out != nil {
		all = []*ticket{c.out}
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

// resolve ends a circle.
func (a *Arbiter) resolve(now time.Time, c *circle) bool {
	if c.out != nil {
		for i := range c.out.spots {
			if s := &c.out.spots[i]; s.hard == 0 {
				return a.serve(now, c.out, s)
			}
		}
		return false
	}
	text, youngest := a.explainCircle(c), c.path[0]
	a.stats.Deadlocks++
	e := a.eventOf(now, youngest, EventDeadlock, text)
	e.Parties = a.parties(c)
	a.event(e)
	a.refuseTicket(now, youngest, ReasonDeadlock, youngest.why.refusal, text)
	return true
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

// committed is what a living process claims of a device: what it holds, or reserves.
func (s *session) committed(d *device) accounting.Bytes {
	return max(s.held(d), s.limits(d).Least())
}

// held is what a process holds on a device, as long as it lives.
func (s *session) held(d *device) accounting.Bytes {
	if l := s.leaseOn(d); l != nil && s.alive() {
		return l.Granted().Plus(l.Charged())
	}
	return 0
}

// waits are the tickets of a job by the process that waits.
func (j *job) waits() map[*session][]*ticket {
	of := make(map[*session][]*ticket)
	for _, t := range j.tickets {
		of[t.session] = append(of[t.session], t)
	}
	return of
}

// standsStill reports whether a job has several processes that hold something, and each of them
// has a request that waits: what one of them waits for the others will hardly free.
func (j *job) standsStill(waits map[*session][]*ticket) bool {
	holding := j.holding()
	return len(holding) > 1 && !slices.ContainsFunc(holding, func(s *session) bool { return len(waits[s]) == 0 })
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
