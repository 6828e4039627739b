package arbiter_test

import (
	"slices"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// This file has the deadlock search of the reference. On a copy of the machine, all jobs that do not wait release what they hold. Then each
// ticket that fits is served, and its job releases what it holds too. The remaining tickets are deadlocked.

// blocked reports whether every thread of a job that has made a call waits.
func (r *reference) blocked(j *refJob) bool {
	alive := false
	for _, s := range j.sessions {
		if !s.dead {
			alive = true
			if !r.allWait(s) {
				return false
			}
		}
	}
	return alive
}

func (r *reference) allWait(s *refSession) bool {
	waiting := 0
	for _, t := range r.tickets {
		if t.lease != nil && t.lease.session == s {
			waiting++ // a thread waits for one request at a time
		}
	}
	return s.threads > 0 && waiting >= s.threads
}

// holdsAny reports whether a job has bytes or a slot on any device.
func (r *reference) holdsAny(j *refJob) bool {
	if !r.fresh(j) {
		return true
	}
	for _, d := range r.devices {
		if slices.ContainsFunc(r.holdersOf(d), func(h refHolder) bool { return h.job == j }) {
			return true
		}
	}
	return false
}

// turnOnly reports whether only earlier tickets block a ticket.
func (r *reference) turnOnly(t *refTicket) bool {
	_, _, ok := r.evaluate(t, make(lines, len(r.devices)))
	return ok
}

// current returns the bars of the tickets before a ticket.
func (r *reference) current(t *refTicket) lines {
	behind := make(lines, len(r.devices))
	for _, u := range r.order() {
		if u == t {
			break
		}
		needs, _, _ := r.evaluate(u, behind)
		r.barAll(u, needs, behind)
	}
	return behind
}

// counts reports whether a job with a ticket may be part of a deadlock: it holds bytes or a slot, and all of its threads wait if strict is
// set.
func (r *reference) counts(j *refJob, strict bool) bool {
	return r.holdsAny(j) && (!strict || r.blocked(j))
}

// standsStill reports whether several processes of a job hold something, and each of them has a ticket.
func (r *reference) standsStill(j *refJob) bool {
	holding := 0
	for _, s := range j.sessions {
		if s.dead || !slices.ContainsFunc(s.leases, func(l *refLease) bool { return !l.gone && l.objects() }) {
			continue
		}
		holding++
		if !slices.ContainsFunc(r.tickets, func(t *refTicket) bool { return t.lease != nil && t.lease.session == s }) {
			return false
		}
	}
	return holding > 1
}

// copy returns a machine with only the tickets and their jobs. Jobs that do not count as waiting hold nothing on it.
func (r *reference) copy(counts func(*refJob) bool) *reference {
	m := &reference{scope: r.scope, shared: r.shared, caps: r.caps, cgroups: r.cgroups, context: r.context, now: r.now}
	devices, jobs := map[*refDevice]*refDevice{}, map[*refJob]*refJob{}
	leases := map[*refLease]*refLease{}
	for _, d := range r.devices {
		devices[d] = &refDevice{index: d.index, total: d.total, slots: d.slots, lost: d.lost}
		m.devices = append(m.devices, devices[d])
	}
	for _, t := range r.tickets {
		if jobs[t.job] != nil {
			continue
		}
		j := *t.job
		jobs[t.job] = &j
		m.jobs = append(m.jobs, &j)
		j.sessions = nil
		for _, s := range t.job.sessions {
			if s.dead {
				continue
			}
			n := *s
			n.job, n.leases = &j, nil
			j.sessions = append(j.sessions, &n)
			for _, l := range s.leases {
				x := *l
				x.session, x.device, x.costs = &n, devices[l.device], 0 // no reading has shown its contexts
				for thread := range x.quiet {
					x.quiet[thread] = x.quiet[thread] || r.scope == rules.ScopeThread && thread > 0 && !r.waits(s, thread)
				}
				n.leases = append(n.leases, &x)
				leases[l] = &x
			}
		}
		if !counts(t.job) {
			j.giveBack(nil)
		}
	}
	for _, t := range r.tickets {
		n := *t
		n.job, n.lease, n.choice = jobs[t.job], leases[t.lease], nil
		for _, d := range t.choice {
			n.choice = append(n.choice, devices[d])
		}
		if n.of = t.of; n.of == nil {
			n.of = t
		}
		m.tickets = append(m.tickets, &n)
	}
	return m
}

// waits reports whether a thread has a ticket.
func (r *reference) waits(s *refSession, thread int) bool {
	return slices.ContainsFunc(r.tickets, func(t *refTicket) bool { return t.lease != nil && t.lease.session == s && int(t.thread) == thread })
}

// giveBack releases everything that a job holds, or that one of its processes holds.
func (j *refJob) giveBack(of *refSession) {
	if of == nil {
		j.gaveBack = true
		j.kept, j.spare, j.tail = nil, nil, nil
	}
	for _, s := range j.sessions {
		for _, l := range s.leases {
			if of == nil || of == s {
				l.used, l.managed, l.costs, l.threads = 0, 0, 0, [4]refMaker{}
			}
		}
	}
}

// admitAll serves tickets that fit, until none does.
func (r *reference) admitAll(inTurn bool) {
	for again := true; again; {
		again = false
		behind := make(lines, len(r.devices))
		for _, t := range slices.Clone(r.order()) {
			r.changed()
			needs, _, ok := r.evaluate(t, behind)
			switch {
			case ok || r.never(t) != arbiter.ReasonNone:
				r.drop(t)
				t.job.giveBack(nil)
				again = true
			case inTurn:
				r.barAll(t, needs, behind)
			}
		}
	}
}

// breakDeadlock breaks a deadlock. It serves a ticket that waits only behind others that wait for its job, or refuses the youngest ticket whose
// process would let another one run. If only is set, it acts only on that ticket.
func (r *reference) breakDeadlock(strict bool, only *refTicket) (outcome, bool) {
	counts := func(j *refJob) bool { return r.counts(j, strict) }
	if !slices.ContainsFunc(r.tickets, func(t *refTicket) bool { return counts(t.job) }) {
		return outcome{}, false
	}
	turns := r.copy(counts)
	turns.admitAll(true)
	for _, t := range turns.tickets {
		if o := t.of; !t.job.gaveBack && r.turnOnly(o) {
			if only != nil && only != o {
				return outcome{}, false
			}
			i := slices.IndexFunc(r.spots(o), func(d *refDevice) bool { n := r.look(o, d, bars{}); return !n.any() })
			return r.serve(o, r.spots(o)[i]), true
		}
	}
	t := r.victim(counts, strict)
	if t == nil || only != nil && only != t {
		return outcome{}, false
	}
	r.drop(t)
	return outcome{ticket: t, reason: arbiter.ReasonDeadlock}, true
}

// victim returns the ticket that is refused; nil: there is no deadlock.
func (r *reference) victim(counts func(*refJob) bool, strict bool) *refTicket {
	m := r.copy(counts)
	m.tickets = slices.DeleteFunc(m.tickets, func(t *refTicket) bool { return t.job.gaveBack })
	m.admitAll(false)
	left := slices.DeleteFunc(slices.Clone(m.tickets), func(t *refTicket) bool { return t.job.gaveBack })
	slices.SortFunc(left, func(x, y *refTicket) int { return y.arrival - x.arrival })
	for _, t := range left {
		n := m.copy(func(j *refJob) bool { return !j.gaveBack })
		x := n.tickets[slices.Index(m.tickets, t)]
		var of *refSession
		if x.lease != nil {
			of = x.lease.session
		}
		n.tickets = slices.DeleteFunc(n.tickets, func(u *refTicket) bool {
			return u.job == x.job && (of == nil && u.lease == nil || u.lease != nil && u.lease.session == of)
		})
		x.job.giveBack(of)
		before := slices.Clone(n.tickets)
		n.admitAll(false)
		if slices.ContainsFunc(before, func(u *refTicket) bool {
			return !slices.Contains(n.tickets, u) && (u.job != x.job || strict || r.standsStill(t.of.job))
		}) {
			return t.of
		}
	}
	for _, t := range left {
		if slices.ContainsFunc(left, func(u *refTicket) bool { return u.job != t.job || strict || r.standsStill(t.of.job) }) {
			return t.of
		}
	}
	return nil
}
