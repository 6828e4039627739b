package arbiter_test

import (
	"slices"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// The reference's way to find circles of waiters: try, for each set of parties that wait,
// what would happen if all others gave back all that they hold.

// blocked: every thread of a job that made a call waits.
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
			waiting++ // a thread waits for one thing at a time
		}
	}
	return s.threads > 0 && waiting >= s.threads
}

// standsStill: several processes of a job hold something, and each of them waits.
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

// holdsAny: a job has bytes or a slot somewhere.
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

// ifOthers is a machine on which only some parties are left, with what they hold.
type ifOthers struct {
	r     *reference
	stuck []*refJob
	left  []*refTicket
}

func (m *ifOthers) isStuck(j *refJob) bool { return slices.Contains(m.stuck, j) }

// held is what a stuck party holds on a device with living processes, or has reserved.
func (m *ifOthers) held(j *refJob, d *refDevice) accounting.Bytes {
	return max(usedBy(j, d, true), j.reserved(d))
}

// heldThere is held without managed memory, which takes no memory of the device.
func (m *ifOthers) heldThere(j *refJob, d *refDevice) accounting.Bytes {
	return max(thereBy(j, d, true), j.reserved(d))
}

// beside is what a stuck party's contexts cost a device, or are to cost.
func (m *ifOthers) beside(j *refJob, d *refDevice) accounting.Bytes {
	return costOf(j, d, true) + m.r.headroom(j, d)
}

// stuckHolders are those of a device's holders that give nothing back.
func (m *ifOthers) stuckHolders(d *refDevice) (all []refHolder) {
	for _, h := range m.r.holdersOf(d) {
		if !m.isStuck(h.job) {
			continue
		}
		if h.session != nil {
			waits := slices.ContainsFunc(m.left, func(t *refTicket) bool {
				return t.lease != nil && t.lease.session == h.session &&
					(m.r.scope != rules.ScopeThread || int(t.thread) == h.thread)
			})
			if !waits || (m.r.scope == rules.ScopeProcess || h.thread == 0) && !m.r.allWait(h.session) {
				continue
			}
		}
		all = append(all, h)
	}
	return all
}

// lacks tells what a ticket would still lack on a device.
func (m *ifOthers) lacks(t *refTicket, d *refDevice) (slot, bytes, share, user bool, cgroups cgroupSet) {
	j := t.job
	var grow, there accounting.Bytes
	if t.kind == 'j' {
		grow = min(j.min, j.max, d.total)
		there = grow
	} else {
		used := usedBy(j, d, true)
		grow = max(used+t.n, j.reserved(d)) - max(used, j.reserved(d))
		if used := thereBy(j, d, true); !t.managed {
			there = max(used+t.n, j.reserved(d)) - max(used, j.reserved(d))
		}
	}
	var all, eves, same accounting.Bytes
	for _, s := range m.stuck {
		all += m.heldThere(s, d) + m.beside(s, d)
		if s.uid == j.uid {
			same += m.held(s, d)
		}
		if student(s.uid) {
			eves += m.held(s, d)
		}
	}
	takes := there + m.r.beside(t)
	bytes = takes > 0 && takes+all > d.total
	share = grow > 0 && student(j.uid) && grow+eves > min(m.r.shared, d.total)
	_, capped := m.r.caps[j.uid]
	user = capped && grow > 0 && grow+same > m.r.capOf(j.uid, d)
	if t.kind == 'a' {
		for _, c := range m.r.around(t.lease.session) {
			if t.n > 0 && t.n+within(m.stuck, c, d, true) > min(m.r.cgroups[c], d.total) {
				cgroups |= 1 << c
			}
		}
	}
	return m.lacksSlot(t, d), bytes, share, user, cgroups
}

func (m *ifOthers) lacksSlot(t *refTicket, d *refDevice) bool {
	start := t.kind == 'j'
	if start && !m.r.keeps(t.job, d) || !start && !m.r.enters(t) {
		return false
	}
	holders := m.stuckHolders(d)
	for _, j := range m.stuck {
		if j != t.job && j.exclusive && slices.Contains(j.kept, d.index) {
			return true
		}
	}
	claims := 0
	for _, h := range holders {
		if h.claim {
			claims++
		}
	}
	switch {
	case start && t.job.exclusive:
		return len(holders) > 0
	case d.slots > 0 && len(holders) >= d.slots:
		return true
	case start:
		return t.job.claim && d.slots == 0 && claims > 0
	}
	return t.lease.session.wish > 0 && len(holders) >= t.lease.session.wish
}

func (m *ifOthers) fits(t *refTicket) bool {
	for _, d := range m.r.spots(t) {
		slot, bytes, share, user, cgroups := m.lacks(t, d)
		if ok := !slot && !bytes && !share && !user && cgroups == 0; ok == t.any {
			return ok
		}
	}
	return !t.any
}

// reduce lets everybody go on who can, until nobody can.
func (m *ifOthers) reduce(inTurn bool) {
	for again := true; again; {
		again = false
		behind := make(lines, len(m.r.devices))
		for _, t := range slices.Clone(m.left) {
			ok := m.fits(t)
			if ok && inTurn {
				ok = !m.barred(t, behind)
			}
			if ok {
				m.left = slices.DeleteFunc(m.left, func(x *refTicket) bool { return x == t })
				m.stuck = slices.DeleteFunc(m.stuck, func(j *refJob) bool { return j == t.job })
				again = true
			} else {
				needs, _, _ := m.r.judge(t, m.r.current(t))
				m.r.barAll(t, needs, behind)
			}
		}
	}
}

// current are the bars that a ticket is behind now.
func (r *reference) current(t *refTicket) lines {
	behind := make(lines, len(r.devices))
	for _, u := range r.order() {
		if u == t {
			break
		}
		needs, _, _ := r.judge(u, behind)
		r.barAll(u, needs, behind)
	}
	return behind
}

func (m *ifOthers) barred(t *refTicket, behind lines) bool {
	for _, d := range m.r.spots(t) {
		b := behind[d.index]
		n := m.r.look(t, d, bars{})
		grows := m.growsNow(t, d)
		stopped := n.enters && b.keepOut(t) || (m.growsThere(t, d) || m.r.beside(t) > 0) && (b.bytes || m.r.fresh(t.job) && b.fresh) ||
			grows && (student(t.job.uid) && b.shared || b.users&setOf(t.job.uid) != 0) || m.barredIn(t, b)
		if stopped != t.any {
			return stopped
		}
	}
	return t.any
}

// barredIn: somebody comes first in a cgroup that it is in.
func (m *ifOthers) barredIn(t *refTicket, b bars) bool {
	return t.kind == 'a' && t.n > 0 && slices.ContainsFunc(m.r.around(t.lease.session), b.cgroups.has)
}

func (m *ifOthers) growsNow(t *refTicket, d *refDevice) bool {
	if t.kind == 'j' {
		return min(t.job.min, t.job.max, d.total) > 0
	}
	used, least := usedBy(t.job, d, true), t.job.reserved(d)
	return max(used+t.n, least) > max(used, least)
}

// growsThere reports whether a ticket takes more of the device's memory now: managed memory takes none.
func (m *ifOthers) growsThere(t *refTicket, d *refDevice) bool {
	if t.kind == 'j' {
		return m.growsNow(t, d)
	}
	used, least := thereBy(t.job, d, true), t.job.reserved(d)
	return !t.managed && max(used+t.n, least) > max(used, least)
}

// waitsFor: what a ticket lacks is held by a party.
func (m *ifOthers) waitsFor(t *refTicket, j *refJob) bool {
	if !m.isStuck(j) {
		return false
	}
	for _, d := range m.r.spots(t) {
		slot, bytes, share, user, cgroups := m.lacks(t, d)
		for c := range refCgroups {
			if cgroups.has(c) && within([]*refJob{j}, c, d, true) > 0 {
				return true
			}
		}
		if bytes && m.heldThere(j, d)+m.beside(j, d) > 0 || m.held(j, d) > 0 && (share && student(j.uid) || user && j.uid == t.job.uid) {
			return true
		}
		if slot && slices.ContainsFunc(m.stuckHolders(d), func(h refHolder) bool { return h.job == j }) {
			return true
		}
	}
	return false
}

// reaches: from a ticket's needs, over what others wait for, one comes to a party.
func (m *ifOthers) reaches(from *refTicket, to *refJob, seen []*refJob) bool {
	for _, j := range m.stuck {
		if slices.Contains(seen, j) || !m.waitsFor(from, j) {
			continue
		}
		for _, t := range m.left {
			if t.job == j && (m.waitsFor(t, to) || m.reaches(t, to, append(slices.Clone(seen), j))) {
				return true
			}
		}
	}
	return false
}

// without returns what is left when everybody goes on but the parties that wait: all of
// whose threads do (strict), or some.
func (r *reference) without(strict, inTurn bool) *ifOthers {
	m := &ifOthers{r: r}
	for _, t := range r.order() {
		if !inTurn && !r.holdsAny(t.job) {
			continue
		}
		m.left = append(m.left, t)
		if r.holdsAny(t.job) && !m.isStuck(t.job) && (!strict || r.blocked(t.job)) {
			m.stuck = append(m.stuck, t.job)
		}
	}
	m.reduce(inTurn)
	return m
}

// untangle serves who waits for nothing but his turn behind those who wait for him, or
// refuses the youngest of a circle. only: for this ticket, or not at all.
func (r *reference) untangle(strict bool, only *refTicket) (fate, bool) {
	stands := func(t *refTicket) bool { return (!strict || r.blocked(t.job)) && r.holdsAny(t.job) }
	if !slices.ContainsFunc(r.tickets, stands) {
		return fate{}, false
	}
	if t, at := r.outOfTurn(strict); t != nil {
		if only != nil && only != t {
			return fate{}, false
		}
		return r.serve(t, at), true
	}
	m := r.without(strict, false)
	byAge := slices.Clone(m.left)
	slices.SortFunc(byAge, func(x, y *refTicket) int { return y.arrival - x.arrival })
	for _, t := range byAge {
		if m.reaches(t, t.job, []*refJob{t.job}) {
			if only != nil && only != t {
				return fate{}, false
			}
			r.drop(t)
			return fate{ticket: t, reason: arbiter.ReasonDeadlock}, true
		}
	}
	for _, t := range byAge {
		if (strict || r.standsStill(t.job)) && m.waitsFor(t, t.job) {
			if only != nil && only != t {
				return fate{}, false
			}
			r.drop(t)
			return fate{ticket: t, reason: arbiter.ReasonDeadlock}, true
		}
	}
	return fate{}, false
}

// outOfTurn is the oldest ticket that lacks nothing but its turn, behind those who wait
// for its party; and where it can be served.
func (r *reference) outOfTurn(strict bool) (*refTicket, *refDevice) {
	if !slices.ContainsFunc(r.tickets, func(t *refTicket) bool { return r.turnOnly(t) && r.holdsAny(t.job) }) {
		return nil, nil
	}
	m := r.without(strict, true)
	for _, t := range r.tickets {
		if slices.Contains(m.left, t) && m.isStuck(t.job) && r.turnOnly(t) {
			for _, d := range r.spots(t) {
				if n := r.look(t, d, bars{}); !n.any() {
					return t, d
				}
			}
		}
	}
	return nil, nil
}

// turnOnly: nothing refuses a ticket but that others come first.
func (r *reference) turnOnly(t *refTicket) bool {
	_, _, ok := r.judge(t, make(lines, len(r.devices)))
	return ok
}

// disentangle ends a circle that a ticket is in, where there is one, as a search does that has not seen
// everybody: the ticket need not be the youngest, or the first that waits for its turn alone.
func (r *reference) disentangle(strict bool, t *refTicket) (fate, bool) {
	if r.turnOnly(t) {
		if m := r.without(strict, true); slices.Contains(m.left, t) && m.isStuck(t.job) {
			i := slices.IndexFunc(r.spots(t), func(d *refDevice) bool { return !r.look(t, d, bars{}).any() })
			return r.serve(t, r.spots(t)[i]), true
		}
	}
	m := r.without(strict, false)
	if !slices.Contains(m.left, t) || !m.isStuck(t.job) {
		return fate{}, false
	}
	if m.reaches(t, t.job, []*refJob{t.job}) || (strict || r.standsStill(t.job)) && m.waitsFor(t, t.job) {
		r.drop(t)
		return fate{ticket: t, reason: arbiter.ReasonDeadlock}, true
	}
	return fate{}, false
}
