package arbiter

import (
	"slices"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/reading"
)

// This file copies the state of the arbiter. The search for a deadlock (deadlock.go) tries on the copy what would happen if jobs released
// what they hold. The copy has the waiting requests whose clients are present (absent.go), and the jobs of these requests. Contexts count
// in the copy only as far as readings have shown them (cost.go). The copy shares no data that changes with the original, so that it needs
// no lock.

// copying is a copy in the making.
type copying struct {
	from, to *Arbiter
	keeps    func(*job) bool // reports whether to copy what a job holds; false: the job holds nothing in the copy
	devices  map[*device]*device
	shareds  map[*shared]*shared
	jobs     map[*job]*job
	sessions map[*session]*session
	leases   map[*lease]*lease
}

// copy returns a copy of the waiting requests and their jobs. A job for which keeps returns true holds the same as now; other jobs hold
// nothing. Idle credit counts as used.
func (a *Arbiter) copy(keeps func(*job) bool) *Arbiter {
	c := &copying{from: a, to: New(a.policy), keeps: keeps, devices: make(map[*device]*device), shareds: make(map[*shared]*shared),
		jobs: make(map[*job]*job), sessions: make(map[*session]*session), leases: make(map[*lease]*lease)}
	c.to.sorted = a.sorted
	for _, d := range a.devices {
		c.device(d)
	}
	for _, t := range a.queue {
		if !t.absent() {
			c.ticket(t)
		}
	}
	for _, d := range a.devices {
		c.permits(d)
	}
	return c.to
}

// device copies a device, without what is held there.
func (c *copying) device(d *device) {
	n := &device{Device: d.Device, rule: d.rule, detected: d.detected, lost: d.lost, policy: &c.to.policy, live: d.live,
		leasesAway: make(map[*lease]struct{})}
	if d.contexts.Expected() > 0 {
		n.rule.ContextReserve = &accounting.Size{Bytes: d.contextCost()}
	}
	n.makeLimits()
	c.devices[d] = n
	c.to.devices = append(c.to.devices, n)
	_ = c.to.ledger.AddDevice(n.Index, n.grantable()) // cannot fail: the ledger is new
	_ = c.to.ledger.Probe(&n.direct, nil, n.Index)
}

// shared copies a shared budget. The copy of nil is nil.
func (c *copying) shared(s *shared) *shared {
	if s == nil {
		return nil
	}
	n := c.shareds[s]
	if n == nil {
		n = &shared{key: s.key, limit: s.limit, rule: s.rule, ownerName: s.ownerName, hidden: c.mapped(s.hidden)}
		if s.limit != nil {
			limit := *s.limit
			n.limit = &limit
			n.budget = c.to.ledger.OpenCap()
		} else {
			n.budget = c.to.ledger.OpenBudget(nil)
		}
		c.shareds[s] = c.to.share(n)
		c.limits(n.budget, s.budget, true)
	}
	return n
}

// mapped returns the copies of devices; nil for nil.
func (c *copying) mapped(of []*device) (all []*device) {
	for _, d := range of {
		all = append(all, c.devices[d])
	}
	return all
}

// limits copies the limits of a budget, with its reservations if reserves is true.
func (c *copying) limits(to, from *accounting.Budget, reserves bool) {
	for d := range c.devices {
		l := from.Limits(d.Index)
		if !reserves {
			l.Min = 0
		}
		_ = c.to.ledger.SetLimits(to, d.Index, l) // cannot fail: the device exists
		if kept, _ := from.ReservedOverhead(d.Index); reserves {
			_ = c.to.ledger.ReserveOverhead(to, d.Index, kept)
		}
	}
}

// job copies a job that waits, with its processes.
func (c *copying) job(j *job) *job {
	if n := c.jobs[j]; n != nil {
		return n
	}
	n := &job{Job: j.Job, id: j.id, request: j.request, run: j.run, opened: j.opened, pending: j.pending,
		released: j.released, releasedAll: !c.keeps(j), user: j.user,
		allWait: j.allWait || j.holdersWait()}
	c.jobs[j] = n
	if j.UserLimits != nil {
		user := *j.UserLimits
		n.UserLimits = &user
	}
	n.devices, n.hidden = c.mapped(j.devices), c.mapped(j.hidden)
	if j.residence() != Resident {
		n.suspension = &suspension{state: j.suspension.state, had: make(map[*device]memory)}
		for d, m := range j.suspension.had {
			n.suspension.had[c.devices[d]] = m
		}
	}
	n.shared, n.cap = c.shared(j.shared), c.shared(j.cap)
	n.budget = c.to.ledger.OpenBudget(budgetOf(n.shared))
	n.budget.Owner = n
	if j.around != nil {
		n.putInside(c.to.ledger, c.job(j.around))
	}
	if n.cap != nil {
		_ = c.to.ledger.SetCaps(n.budget, n.cap.budget) // cannot fail: it is a cap
	}
	c.limits(n.budget, j.budget, !n.releasedAll)
	c.to.jobs[n.id] = n
	for _, s := range j.sessions {
		if s.alive() {
			c.session(s, n)
		}
	}
	return n
}

// session copies a process of a job.
func (c *copying) session(s *session, in *job) {
	n := &session{Client: s.Client, id: s.id, process: s.process, job: in, opened: s.opened, pending: s.pending, slots: s.slots,
		slotScope: s.slotScope, reserve: s.reserve, onFull: s.onFull, hidden: c.mapped(s.hidden)}
	n.Job = &in.Job
	c.sessions[s] = n
	n.budget = c.to.ledger.OpenBudget(in.budget)
	n.budget.Owner = n
	caps := make([]*accounting.Budget, len(s.cgroups))
	for i, g := range s.cgroups {
		n.cgroups = append(n.cgroups, c.shared(g))
		caps[i] = n.cgroups[i].budget
	}
	_ = c.to.ledger.SetCaps(n.budget, caps...) // cannot fail: all are caps
	c.limits(n.budget, s.budget, !in.releasedAll)
	in.sessions = append(in.sessions, n)
	for _, l := range s.leases {
		c.lease(l, n)
	}
}

// lease copies a lease, and what it holds unless its job has released that. The copy is marked as spoiled, so that the client's credit word
// is not read.
func (c *copying) lease(l *lease, of *session) {
	n := &lease{id: l.id, session: of, device: c.devices[l.device], opened: l.opened, lost: l.lost, outside: l.outside, scope: l.scope, spoiled: true}
	c.leases[l] = n
	_ = c.to.ledger.OpenLease(n, of.budget, n.device.Index, l.StreamsMax()) // cannot fail: the device exists
	if !of.job.releasedAll {
		held := l.holding()
		held.charged, held.beyond = held.charged.Less(l.extra.Assumed()), l.extra.Shown()
		n.hold(held)
	}
	of.leases = append(of.leases, n)
}

// holding has the amounts of a lease, without its permits.
type holding struct {
	granted, away, charged accounting.Bytes
	streams                int
	contexts, holds        int
	beyond                 reading.Extra
}

// holding returns what a lease holds.
func (l *lease) holding() holding {
	return holding{l.Granted(), l.Away(), l.Charged(), l.Streams(), l.contexts, l.holds, l.extra}
}

// hold gives a lease of a copy, which must hold nothing, these amounts.
func (l *lease) hold(h holding) {
	l.Force(accounting.Memory, h.granted)
	l.Force(accounting.Streams, accounting.Bytes(h.streams))
	l.SetAway(h.away)
	l.Charge(h.charged)
	l.contexts, l.holds, l.extra = h.contexts, h.holds, h.beyond
	l.SetOverhead(l.uncharged())
}

// permits copies the permits on a device of jobs that keep what they hold. It omits the permits of threads without a waiting request,
// because these threads may still release them.
func (c *copying) permits(d *device) {
	n := c.devices[d]
	for o, h := range d.permits[permit.Slot] {
		in := c.jobs[o.Job]
		if in == nil || in.releasedAll || o.Process != nil && o.Thread != 0 && !waits(o) {
			continue
		}
		to := owner{Job: in, Process: c.sessions[o.Process], Thread: o.Thread}
		copied := &holder{owner: to, device: n, since: h.since, kept: h.kept, spare: h.spare, lease: c.leases[h.lease]}
		n.permits.Grant(to, d.kindsOf(o), copied)
		in.slots++
	}
	for l, copied := range c.leases {
		if l.device == d && l.slot != nil {
			copied.slot = n.holder(owner{Job: copied.session.job, Process: c.sessions[l.slot.Process], Thread: l.slot.Thread})
		}
	}
}

// waits reports whether the thread that owns a permit has a waiting request.
func waits(o owner) bool {
	return slices.ContainsFunc(o.Job.tickets, func(t *ticket) bool { return t.session == o.Process && t.thread == o.Thread })
}

// ticket copies a waiting request.
func (c *copying) ticket(t *ticket) {
	n := &ticket{id: t.id, place: t.place, kind: t.kind, job: c.job(t.job), session: c.sessions[t.session], lease: c.leases[t.lease], thread: t.thread,
		bytes: t.bytes, managed: t.managed, count: t.count, priority: t.priority, any: t.any, waitingSince: t.waitingSince, live: t.original()}
	n.onlyBlocked = t.onlyBlocked || t.live == nil && t.fitsButBlocked()
	for i := range t.candidates {
		n.candidates = append(n.candidates, candidate{device: c.devices[t.candidates[i].device]})
		n.candidates[i].device.waiting++
	}
	n.job.tickets = append(n.job.tickets, n)
	c.to.queue = append(c.to.queue, n)
}

// try calls do on a copy, and then undoes the changes that releaseHoldings and admitAll made in do.
func (a *Arbiter) try(do func()) {
	queue := a.queue
	a.queue, a.undo = slices.Clone(queue), nil
	do()
	for _, back := range slices.Backward(a.undo) {
		back()
	}
	a.queue, a.undo = queue, nil
}

// addUndo adds a function that undoes one change of a copy. The enclosing try calls these functions, the last one first.
func (a *Arbiter) addUndo(back func()) { a.undo = append(a.undo, back) }

// releaseHoldings releases on a copy what the given processes of a job hold. Without processes it releases everything that the job holds.
func (a *Arbiter) releaseHoldings(j *job, of ...*session) {
	whole := of == nil
	if whole {
		j.releasedAll, of = true, j.sessions
		a.addUndo(func() { j.releasedAll = false })
		a.clearReservations(j.budget)
	}
	for _, s := range of {
		a.clearReservations(s.budget)
		for _, l := range s.leases {
			held, h := l.holding(), l.slot
			a.addUndo(func() {
				l.slot = h
				l.hold(held)
			})
			l.Clear()
			l.contexts, l.holds, l.slot, l.extra = 0, 0, nil, reading.Extra{}
			if h != nil && h.Process == nil && !h.kept && !a.sharesSlot(h) {
				a.dropPermits(h)
			}
		}
	}
	if j.slots == 0 {
		return
	}
	for _, d := range a.devices {
		for o, h := range d.permits[permit.Slot] {
			if o.Job == j && (whole || slices.Contains(of, o.Process)) {
				a.dropPermits(h)
			}
		}
	}
}

// dropPermits removes the permits of a holder on a copy.
func (a *Arbiter) dropPermits(h *holder) {
	d, kinds := h.device, h.device.kindsOf(h.owner)
	a.addUndo(func() {
		d.permits.Grant(h.owner, kinds, h)
		h.Job.slots++
	})
	d.permits.Revoke(h.owner)
	h.Job.slots--
}

// sharesSlot reports whether a lease of the holder's job still holds memory or objects under this slot.
func (a *Arbiter) sharesSlot(h *holder) bool {
	for l := range h.Job.leasesOn(h.device) {
		if l.slot == h && (l.Granted() > 0 || l.contexts+l.holds+l.Streams() > 0) {
			return true
		}
	}
	return false
}

// clearReservations removes the reservations of a budget on a copy.
func (a *Arbiter) clearReservations(b *accounting.Budget) {
	for _, d := range a.devices {
		was := b.Limits(d.Index)
		kept, _ := b.ReservedOverhead(d.Index)
		if was.Min == 0 && kept == 0 {
			continue
		}
		set := func(l accounting.Limits, kept accounting.Bytes) {
			_ = a.ledger.SetLimits(b, d.Index, l) // cannot fail: the device exists
			_ = a.ledger.ReserveOverhead(b, d.Index, kept)
		}
		a.addUndo(func() { set(was, kept) })
		set(accounting.Limits{Max: was.Max}, 0)
	}
}
