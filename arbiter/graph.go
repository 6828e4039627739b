package arbiter

import (
	"cmp"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/deadlock"
	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// graph is the arbiter's copy of itself for a search for circles: what package deadlock searches, and whose
// its requests are.
type graph struct {
	deadlock.Graph
	tickets []*ticket // by request

	a       *Arbiter
	copies  []requestOf
	parties map[*job]int
	share   map[*accounting.Budget]int // the first of a shared budget's limits, of which it has one on each device
	lines   map[lineOf]int             // the limits of order
	holding bool                       // somebody who waits holds something
}

// requestOf is a request that was copied, and by what it is served before others.
type requestOf struct {
	deadlock.Request
	ticket *ticket
	rank   int
}

// The limits of each device in the graph.
const (
	limitBytes     = iota
	limitPermits   // and from here on one for each kind
	limitsOfDevice = limitPermits + int(permit.Count)
)

// graph begins to copy who holds and waits.
func (a *Arbiter) graph() graph {
	return graph{Graph: deadlock.Graph{Limits: make([]deadlock.Limit, limitsOfDevice*len(a.devices))}, a: a,
		parties: make(map[*job]int), share: make(map[*accounting.Budget]int), lines: make(map[lineOf]int), copies: make([]requestOf, 0, len(a.tickets))}
}

// copy judges up to so many tickets anew and copies them. True: what others were given has put more in
// somebody's way, or a slot was left without a word, and the queues are to be gone through again.
func (g *graph) copy(now time.Time) (changed bool) {
	for _, t := range g.a.queue {
		changed = g.a.refresh(now, t) || changed
		party, swept := g.party(now, t)
		changed = swept || changed
		g.copies = append(g.copies, requestOf{g.request(now, t, party), t, g.a.rank(now, t)})
	}
	return changed
}

// party copies what a ticket's job holds, after it has given the slots back that it left without a word.
func (g *graph) party(now time.Time, t *ticket) (party int, swept bool) {
	party, known := g.parties[t.job]
	if !known {
		party = len(g.Parties)
		g.parties[t.job] = party
		g.Parties = append(g.Parties, deadlock.Party{})
	}
	p := &g.Parties[party]
	if p.Holding || !t.holding() {
		return party, false
	}
	g.holding = true
	waits := t.job.waits()
	*p = deadlock.Party{Holding: true, Blocked: t.job.blocked(), Still: t.job.standsStill(waits)}
	g.addHoldings(t.job, party)
	return party, g.addPermits(now, t.job, party, waits)
}

// order brings the requests that were copied into the order in which they are served.
func (g *graph) order() {
	slices.SortFunc(g.copies, func(x, y requestOf) int { return byArrival(x.ticket, y.ticket) })
	for i := range g.copies {
		g.copies[i].Arrival = i
	}
	slices.SortStableFunc(g.copies, func(x, y requestOf) int { return cmp.Compare(y.rank, x.rank) })
	at := make([]int, len(g.copies)) // by arrival
	for i, c := range g.copies {
		at[c.Arrival] = i
		for k := range c.Needs {
			if n := &c.Needs[k]; n.Order {
				n.Level = accounting.SumOf(accounting.Bytes(len(g.copies) - i))
			}
		}
		g.Requests = append(g.Requests, c.Request)
		g.tickets = append(g.tickets, c.ticket)
	}
	for _, i := range at {
		p := &g.Parties[g.Requests[i].Party]
		p.Requests = append(p.Requests, i)
	}
}

// circle is what a search found, in the arbiter's terms.
func (g *graph) circle(f *deadlock.Finding) *circle {
	if f == nil {
		return nil
	}
	c := &circle{}
	if f.Out >= 0 {
		c.out = g.tickets[f.Out]
	}
	for _, i := range f.Path {
		c.path = append(c.path, g.tickets[i])
	}
	return c
}

// of is a limit of a device.
func (g *graph) of(d *device, limit int) int {
	return limitsOfDevice*slices.Index(g.a.devices, d) + limit
}

// ofShare is the limit of a shared budget on a device.
func (g *graph) ofShare(s *shared, d *device) int {
	return numbered(g, g.share, s.budget, len(g.a.devices)) + slices.Index(g.a.devices, d)
}

// line is the limit of order that a line is.
func (g *graph) line(l *line, fresh bool) int { return numbered(g, g.lines, lineOf{l, fresh}, 1) }

// lineOf is a line, or the part of it that blocks jobs alone that hold no memory.
type lineOf struct {
	*line
	fresh bool
}

// numbered is the first of so many limits of something, which are made where it has none yet.
func numbered[K comparable](g *graph, known map[K]int, of K, limits int) int {
	first, is := known[of]
	if !is {
		first = len(g.Limits)
		known[of] = first
		g.Limits = append(g.Limits, make([]deadlock.Limit, limits)...)
	}
	return first
}

// addHoldings notes what a party has of the bytes of each device.
func (g *graph) addHoldings(j *job, party int) {
	for _, d := range g.a.devices {
		n := j.committed(d)
		present := max(j.held(d).Less(j.away(d)), j.limits(d).Least())
		g.Hold(party, g.of(d, limitBytes), accounting.SumOf(present).Add(accounting.SumOf(j.beside(d))))
		for sh := range j.shares {
			g.Hold(party, g.ofShare(sh, d), accounting.SumOf(n))
		}
		for _, s := range j.sessions {
			if !s.alive() {
				continue
			}
			for _, c := range s.cgroups {
				g.Hold(party, g.ofShare(c, d), accounting.SumOf(s.committed(d)))
			}
		}
	}
}

// addPermits notes which permits a party has that it will not give back. True: it gave some back.
func (g *graph) addPermits(now time.Time, j *job, party int, waits map[*session][]*ticket) (swept bool) {
	for _, d := range g.a.devices {
		for _, h := range j.holders(d) {
			switch {
			case !h.kept && !g.a.busy(h):
				g.a.drop(now, h)
				swept = true
			case h.waits(waits[h.Process]):
				for k, set := range d.permits {
					if set[h.owner] != nil {
						g.Hold(party, g.of(d, limitPermits+k), accounting.SumOf(1))
					}
				}
			}
		}
	}
	return swept
}

// holders are those of a job, its processes and their threads on a device.
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

// waits reports whether the holder of a slot, of a job that waits, waits itself. A thread or a
// process that is not known to wait goes on, and will give its slot back. These are the process's tickets.
func (h *holder) waits(tickets []*ticket) bool {
	waits := func(t *ticket) bool {
		return t.lease == nil || t.lease.scope != rules.ScopeThread || t.thread == h.Thread
	}
	switch {
	case h.Process == nil:
		return true
	case !slices.ContainsFunc(tickets, waits):
		return false
	}
	return h.Thread != 0 || h.Process.blocked()
}

// request copies what a ticket needs.
func (g *graph) request(now time.Time, t *ticket, party int) deadlock.Request {
	r := deadlock.Request{Party: party, Holding: t.holding(), OrderOnly: t.onlyBehind(), Any: t.any, Spots: len(t.spots)}
	for i := range t.spots {
		g.addNeeds(&r, t, i)
		g.a.blocks(now, t, &t.spots[i], func(l *line, since time.Time) { r.KeepsOut = append(r.KeepsOut, g.line(l, !since.IsZero())) })
	}
	return r
}

// addNeeds notes what a ticket needs of the limits at one of its spots, and the lines in which it stands there.
func (g *graph) addNeeds(r *deadlock.Request, t *ticket, spot int) {
	s := &t.spots[spot]
	d := s.device
	add := func(n deadlock.Need) {
		n.Spot = spot
		r.Needs = append(r.Needs, n)
	}
	behind := func(l *line) { add(deadlock.Need{Limit: g.line(l, false), Order: true}) }
	within := func(limit int, most, n accounting.Bytes) {
		add(deadlock.Need{Limit: limit, Level: accounting.SumOf(most.Less(n)), Never: n > most})
	}
	fewerThan := func(k permit.Kind, n int) {
		add(deadlock.Need{Limit: g.of(d, limitPermits+int(k)), Level: accounting.SumOf(accounting.Bytes(n - 1))})
	}
	if n := g.takes(t, d); n > 0 {
		within(g.of(d, limitBytes), d.grantable(), n)
		behind(&d.bytes)
		if t.fresh {
			add(deadlock.Need{Limit: g.line(&d.bytes, true), Order: true})
		}
	}
	if g.a.chained(t) {
		for sh := range t.shares {
			if n := g.growsAt(t, d, sh); n > 0 {
				within(g.ofShare(sh, d), sh.limits(d).Max, n)
				behind(sh.line(d))
			}
		}
	}
	for k, most := range s.asks.Limits(d.caps()) {
		if most != permit.None || d.permits.Others(k, t.job) {
			fewerThan(k, max(1, most))
		}
	}
	if s.asks[permit.Slot] && t.session != nil && t.session.slots > 0 {
		fewerThan(permit.Slot, t.session.slots)
	}
	for k, asked := range s.asks {
		if asked {
			behind(&d.entry[k])
		}
	}
}

// takes is by how much less of a device there would be for others.
func (g *graph) takes(t *ticket, d *device) accounting.Bytes {
	switch {
	case t.managed:
		return 0
	case t.lease == nil:
		least, budget := t.reserves(d)
		return g.grows(t, d).Plus(g.a.headroomFor(budget, d, least))
	case !g.a.chained(t):
		return t.bytes // a context's, which no budget has a part of
	}
	return g.grows(t, d)
}

// growsAt is by how much a ticket's party would come to hold more in a budget that it shares with others: in a
// cgroup's, its process alone.
func (g *graph) growsAt(t *ticket, d *device, sh *shared) accounting.Bytes {
	if !sh.ofCgroup() {
		return g.grows(t, d)
	}
	if t.lease == nil {
		n, budget := t.reserves(d)
		if budget != t.session.budget { // its job's
			return 0
		}
		return n
	}
	least, held := t.session.limits(d).Least(), t.session.held(d)
	return max(held.Plus(t.bytes), least).Less(max(held, least))
}

// grows is by how much a ticket's party would come to hold more in its budgets.
func (g *graph) grows(t *ticket, d *device) accounting.Bytes {
	if t.lease == nil {
		n, _ := t.reserves(d)
		return n.Less(t.job.committed(d))
	}
	least, held := t.job.limits(d).Least(), accounting.Bytes(0)
	if least > 0 {
		held = t.job.held(d)
	}
	return max(held.Plus(t.bytes), least).Less(max(held, least))
}
