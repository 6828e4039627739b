package arbiter

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
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
	if !a.tangled {
		return false
	}
	a.tangled = false
	holding, blocked := false, false
	for _, t := range a.tickets {
		if t.holding() {
			holding = true
			blocked = blocked || t.job.blocked()
		}
	}
	switch {
	case !holding: // who holds nothing is in nobody's way
		a.looseAt = time.Time{}
	case a.looseAt.IsZero():
		a.looseAt = now.Add(a.policy.DeadlockGrace)
	}
	if !blocked {
		return false
	}
	if a.refresh(now) {
		return true
	}
	c := a.circle(now, true)
	return c != nil && a.resolve(now, c)
}

// refresh judges everybody anew: what others were given since may have put more in their
// way. True: it did, and the queues are to be gone through again.
func (a *Arbiter) refresh(now time.Time) (changed bool) {
	for _, t := range a.order {
		at, turn := t.at(), t.turn()
		if a.judge(now, t); t.at() != at || t.turn() != turn {
			t.setDirty()
			changed, a.tangled = true, true
		}
	}
	return changed
}

// loosen ends the circles in which something might have moved, and nothing has.
func (a *Arbiter) loosen(now time.Time) {
	for range 2 + 2*len(a.tickets) {
		if a.looseAt.IsZero() || now.Before(a.looseAt) {
			return
		}
		if a.refresh(now) {
			a.turn(now)
			continue
		}
		c := a.circle(now, false)
		if c == nil {
			a.looseAt = time.Time{}
			return
		}
		if since := c.moved(); now.Sub(since) < a.policy.DeadlockGrace {
			a.looseAt = since.Add(a.policy.DeadlockGrace)
			return
		}
		if !a.resolve(now, c) {
			a.looseAt = now.Add(a.policy.DeadlockGrace)
			return
		}
		a.turn(now)
	}
}

// holding reports whether a ticket's job has bytes or a slot somewhere.
func (t *ticket) holding() bool { return !t.fresh || t.job.slots > 0 }

// circle is who waits for each other: nil where nobody does.
type circle struct {
	sim *simulation
	out *ticket // to be served out of turn; nil: none
	// A true circle: the youngest of it, and the path from that one's job back to it.
	youngest *ticket
	path     []*ticket
}

// circle finds one, in which all threads of all parties wait (strict), or some do.
func (a *Arbiter) circle(now time.Time, strict bool) *circle {
	tickets := a.sortedTickets()
	for _, t := range tickets {
		if !t.turn() || !t.holding() {
			continue
		}
		// Somebody waits for his turn alone: do those before him wait for him?
		sim := a.simulate(now, tickets, strict, true)
		for _, t := range tickets {
			if sim.left[t] && t.turn() && sim.stuck[t.job] {
				return &circle{sim: sim, out: t}
			}
		}
		break
	}
	sim := a.simulate(now, tickets, strict, false)
	for _, t := range slices.Backward(tickets) {
		if sim.left[t] {
			if path := sim.path(t); path != nil {
				return &circle{sim: sim, youngest: t, path: path}
			}
		}
	}
	if !strict {
		return nil
	}
	for _, t := range slices.Backward(tickets) { // whose own other threads hold what it wants
		if sim.left[t] && sim.waitsFor(t, t.job) {
			return &circle{sim: sim, youngest: t, path: []*ticket{t}}
		}
	}
	return nil
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
	text := a.explainCircle(c)
	a.stats.Deadlocks++
	a.ticketEvent(now, c.youngest, EventDeadlock, text)
	a.refuseTicket(now, c.youngest, ReasonDeadlock, c.youngest.why.refusal, text)
	return true
}

// explainCircle says who holds what and who wants what.
func (a *Arbiter) explainCircle(c *circle) string {
	var parts []string
	for _, t := range c.path {
		d, _ := t.where()
		parts = append(parts, fmt.Sprintf("%s holds %s and wants %s on GPU %d", t.name(), a.holdings(t.job), a.wants(t), d.Index))
	}
	return fmt.Sprintf("deadlock: %s; the request of %s came last and is refused",
		strings.Join(parts, ", "), c.youngest.name())
}

// holdings says what a job holds.
func (a *Arbiter) holdings(j *job) string {
	var parts []string
	for _, d := range a.devices {
		var slots int
		for k := range d.holders {
			if k.job == j {
				slots++
			}
		}
		var what []string
		if n := j.committed(d); n > 0 {
			what = append(what, n.Human())
		} else if j.beside(d) > 0 {
			what = append(what, "a context")
		}
		if slots > 0 && (d.slotsMax() > 0 || d.exclusive == j || d.claims > 0) {
			what = append(what, "a slot")
		}
		if what != nil {
			parts = append(parts, fmt.Sprintf("%s on GPU %d", strings.Join(what, " and "), d.Index))
		}
	}
	if parts == nil {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// committed is what a job's living processes hold on a device, or what is reserved for it.
func (j *job) committed(d *device) accounting.Bytes {
	var held accounting.Bytes
	for _, s := range j.sessions {
		if !s.alive() {
			continue
		}
		for _, l := range s.leases {
			if l.device == d && !l.lost {
				held = held.Plus(l.sum.Granted()).Plus(l.sum.Charged())
			}
		}
	}
	l := j.limits(d)
	return max(held, min(l.Min, l.Max))
}

// simulation lets those who go on finish in thought.
type simulation struct {
	a       *Arbiter
	now     time.Time
	strict  bool
	tickets []*ticket
	left    map[*ticket]bool             // of those that hold something: not served even so
	stuck   map[*job]bool                // they do not go on
	held    map[*device]accounting.Bytes // by those who are stuck
	below   map[place]accounting.Bytes   // of that, below shared budgets
	slots   map[*device]int              // of holders that are stuck
}

// simulate begins with the parties that are known to be stuck, and ends with those that
// nothing can help. inTurn: nobody is served before those who come first.
func (a *Arbiter) simulate(now time.Time, tickets []*ticket, strict, inTurn bool) *simulation {
	m := &simulation{a: a, now: now, strict: strict, tickets: tickets, left: map[*ticket]bool{}, stuck: map[*job]bool{},
		held: map[*device]accounting.Bytes{}, below: map[place]accounting.Bytes{}, slots: map[*device]int{}}
	if inTurn {
		m.tickets = slices.SortedStableFunc(slices.Values(tickets), func(x, y *ticket) int {
			return cmp.Compare(a.rank(now, y), a.rank(now, x))
		})
	} else {
		m.tickets = slices.DeleteFunc(slices.Clone(tickets), func(t *ticket) bool { return !t.holding() })
	}
	for _, t := range m.tickets {
		m.left[t] = true
		if t.holding() && !m.stuck[t.job] && (!strict || t.job.blocked()) {
			m.stuck[t.job] = true
			for _, d := range a.devices {
				m.add(t.job, d)
			}
		}
	}
	m.countSlots()
	for again := true; again; {
		again = false
		barred := map[*line]bool{}
		for _, t := range m.tickets {
			if !m.left[t] {
				continue
			}
			if inTurn && m.barred(t, barred) || !m.fits(t) {
				if inTurn {
					m.bar(t, barred)
				}
				continue
			}
			m.finish(t)
			again = true
		}
	}
	return m
}

// blocked reports whether every thread of a job that ever made an intercepted call waits.
func (j *job) blocked() bool {
	for _, s := range j.sessions {
		if s.alive() && !s.blocked() {
			return false
		}
	}
	return len(j.sessions) > 0
}

// blocked reports whether every thread of a process waits, as far as is known.
func (s *session) blocked() bool {
	if s.threads == 0 {
		return false
	}
	waiting, known := 0, make(map[uint32]bool)
	for _, t := range s.job.tickets {
		if t.session == s && (t.thread == 0 || !known[t.thread]) {
			waiting++
			known[t.thread] = true
		}
	}
	return waiting >= s.threads
}

// add counts what a stuck party holds on a device.
func (m *simulation) add(j *job, d *device) {
	n := j.committed(d)
	if s := j.shared; s != nil {
		m.below[place{s.budget, d.Index}] = m.below[place{s.budget, d.Index}].Plus(n)
	}
	m.held[d] = m.held[d].Plus(n).Plus(j.beside(d))
}

// remove is the reverse of add.
func (m *simulation) remove(j *job) {
	delete(m.stuck, j)
	clear(m.held)
	clear(m.below)
	for j := range m.stuck {
		for _, d := range m.a.devices {
			m.add(j, d)
		}
	}
}

// countSlots counts the slots of those who are stuck. A thread or a process that is not
// known to wait goes on, and will give its slot back.
func (m *simulation) countSlots() {
	clear(m.slots)
	for _, d := range m.a.devices {
		for _, h := range d.holders {
			if m.holding(h) {
				m.slots[d]++
			}
		}
	}
}

// holding reports whether a holder is stuck.
func (m *simulation) holding(h *holder) bool {
	k := h.key
	waits := func(t *ticket) bool {
		return m.left[t] && t.session == k.session && (t.lease == nil || t.lease.scope != ScopeThread || t.thread == k.thread)
	}
	switch {
	case !m.stuck[k.job]:
		return false
	case k.session == nil:
		return true
	case !slices.ContainsFunc(k.job.tickets, waits):
		return false
	}
	return k.thread != 0 || k.session.blocked()
}

// fits tells whether a ticket could be served by what all who go on give back.
func (m *simulation) fits(t *ticket) bool {
	for i := range t.spots {
		if fits := m.fitsAt(t, &t.spots[i]); fits == t.any {
			return fits
		}
	}
	return !t.any
}

func (m *simulation) fitsAt(t *ticket, s *spot) bool {
	return !m.shortOfSlots(t, s) && !m.shortOfBytes(t, s.device) && !m.shortOfShare(t, s.device)
}

func (m *simulation) shortOfSlots(t *ticket, s *spot) bool {
	d := s.device
	if !s.enters {
		return false
	}
	if d.exclusive != nil && m.stuck[d.exclusive] && d.exclusive != t.job {
		return true
	}
	taken := m.slots[d]
	r := &t.job.request
	switch most := d.slotsMax(); {
	case t.kind == wantsJob && r.Exclusive:
		return taken > 0
	case most > 0 && taken >= most:
		return true
	case t.kind == wantsJob && (r.Claim || r.Any) && most == 0:
		return slices.ContainsFunc(sortedHolders(d), func(h *holder) bool { return h.claim && m.holding(h) })
	}
	return t.session != nil && t.session.slots > 0 && taken >= t.session.slots
}

// takes is by how much less of a device there would be for others.
func (m *simulation) takes(t *ticket, d *device) accounting.Bytes {
	switch {
	case t.lease == nil:
		least, budget := t.reserves(d)
		return m.grows(t, d).Plus(m.a.headroomFor(budget, d, least))
	case !m.a.chained(t):
		return t.bytes // a context's, which no budget has a part of
	}
	return m.grows(t, d)
}

// grows is by how much a ticket's party would come to hold more in its budgets.
func (m *simulation) grows(t *ticket, d *device) accounting.Bytes {
	if t.lease == nil {
		n, _ := t.reserves(d)
		return n.Less(t.job.committed(d))
	}
	l := t.job.limits(d)
	least, held := min(l.Min, l.Max), accounting.Bytes(0)
	if least > 0 {
		held = t.job.heldOn(d)
	}
	return max(held.Plus(t.bytes), least).Less(max(held, least))
}

// heldOn is what a job's living processes hold on a device.
func (j *job) heldOn(d *device) accounting.Bytes {
	var held accounting.Bytes
	for _, s := range j.sessions {
		for _, l := range s.leases {
			if l.device == d && s.alive() {
				held = held.Plus(l.sum.Granted()).Plus(l.sum.Charged())
			}
		}
	}
	return held
}

func (m *simulation) shortOfBytes(t *ticket, d *device) bool {
	n := m.takes(t, d)
	return n > 0 && n > d.grantable().Less(m.held[d])
}

func (m *simulation) shortOfShare(t *ticket, d *device) bool {
	s := t.job.shared
	if s == nil || t.lease != nil && !m.a.chained(t) {
		return false
	}
	n := m.grows(t, d)
	return n > 0 && n > s.limits(d).Max.Less(m.below[place{s.budget, d.Index}])
}

// finish has a ticket served and its party go on: what that holds is free.
func (m *simulation) finish(t *ticket) {
	delete(m.left, t)
	if m.stuck[t.job] {
		m.remove(t.job)
	}
	if t.holding() {
		m.countSlots()
	}
}

// barred reports whether somebody comes first who is not served.
func (m *simulation) barred(t *ticket, barred map[*line]bool) bool {
	for i := range t.spots {
		s := &t.spots[i]
		d := s.device
		stopped := s.enters && (barred[&d.slots] || (s.claims || s.alone) && barred[&d.claimers] || s.alone && barred[&d.entrants]) ||
			m.takes(t, d) > 0 && (barred[&d.bytes] || t.fresh && barred[&d.fresh]) ||
			t.job.shared != nil && (t.lease == nil || m.a.chained(t)) && m.grows(t, d) > 0 && barred[t.job.shared.line(d)]
		if stopped != t.any {
			return stopped
		}
	}
	return t.any
}

// bar has a ticket that is not served stop those that come later, as it does now.
func (m *simulation) bar(t *ticket, barred map[*line]bool) {
	for i := range t.spots {
		s := &t.spots[i]
		at := t.waitsOn(s)
		if at&atShared != 0 {
			barred[t.job.shared.line(s.device)] = true
		}
		if at&(atShared|atWish) != 0 {
			continue
		}
		if s.enters {
			barred[s.entry()] = true
		}
		if at&atBytes != 0 && at&atSlots == 0 {
			if t.fresh && m.now.Sub(t.place.Since) < m.a.policy.AgeAfter {
				barred[&s.device.fresh] = true
			} else {
				barred[&s.device.bytes] = true
			}
		}
	}
}

// waitsFor reports whether what a ticket lacks is held by a party that is stuck.
func (m *simulation) waitsFor(t *ticket, j *job) bool {
	for i := range t.spots {
		s := &t.spots[i]
		d := s.device
		if m.shortOfBytes(t, d) && m.stuck[j] && j.committed(d).Plus(j.beside(d)) > 0 {
			return true
		}
		if m.shortOfShare(t, d) && m.stuck[j] && j.shared == t.job.shared && j.committed(d) > 0 {
			return true
		}
		if !m.shortOfSlots(t, s) {
			continue
		}
		for _, h := range d.holders {
			if h.key.job == j && m.holding(h) {
				return true
			}
		}
	}
	return false
}

// path finds the shortest way from a ticket's party through others back to it: one
// ticket of each party on it. nil: there is none.
func (m *simulation) path(from *ticket) []*ticket {
	type step struct {
		ticket *ticket
		before *step
	}
	seen := map[*job]bool{from.job: true}
	trail := []*step{{ticket: from}}
	for len(trail) > 0 {
		at := trail[0]
		trail = trail[1:]
		if at.before != nil && m.waitsFor(at.ticket, from.job) {
			var path []*ticket
			for s := at; s != nil; s = s.before {
				path = append(path, s.ticket)
			}
			slices.Reverse(path)
			return path
		}
		for _, next := range m.tickets {
			if m.left[next] && m.stuck[next.job] && !seen[next.job] && m.waitsFor(at.ticket, next.job) {
				seen[next.job] = true
				for _, t := range m.tickets { // any of its waiting threads may be the one that closes the circle
					if m.left[t] && t.job == next.job {
						trail = append(trail, &step{t, at})
					}
				}
			}
		}
	}
	return nil
}
