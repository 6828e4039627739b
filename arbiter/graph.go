package arbiter

import (
	"cmp"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/deadlock"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// graph is the arbiter's copy of itself for a search for circles: what package deadlock searches, and whose
// its requests are.
type graph struct {
	deadlock.Graph
	tickets []*ticket // by request

	a     *Arbiter
	now   time.Time
	party map[*job]int               // −1: it goes on
	share map[*accounting.Budget]int // the first of a shared budget's limits
}

// The limits of each device in the graph, and those of a shared budget on it.
const (
	limitBytes = iota
	limitSlots
	limitClaims // holders by claim
	limitAlone  // a job that has it alone
	lineSlots
	lineClaimers
	lineEntrants
	lineBytes
	lineFresh
	limitsOfDevice
)

const (
	limitShare = iota
	lineShare
	limitsOfShare
)

// graph copies who holds and waits. strict: parties are those alone all of whose threads wait.
func (a *Arbiter) graph(now time.Time, strict bool) *graph {
	g := &graph{a: a, now: now, party: make(map[*job]int, len(a.waiting)), share: make(map[*accounting.Budget]int)}
	g.Limits = make([]deadlock.Limit, limitsOfDevice*len(a.devices))
	byArrival := a.sortedTickets()
	for _, t := range byArrival {
		if _, known := g.party[t.job]; known || !t.holding() {
			continue
		}
		g.party[t.job] = -1
		if !strict || t.job.blocked() {
			g.party[t.job] = len(g.Parties)
			g.Parties = append(g.Parties, deadlock.Party{Still: strict || t.job.standsStill()})
		}
	}
	for j, party := range g.party {
		if party >= 0 {
			g.addHoldings(j, party)
		}
	}
	for i, d := range a.devices {
		g.addSlots(i, d)
	}
	arrival := make(map[*ticket]int, len(byArrival))
	for i, t := range byArrival {
		arrival[t] = i
	}
	g.tickets = slices.Clone(byArrival)
	slices.SortStableFunc(g.tickets, func(x, y *ticket) int { return cmp.Compare(a.rank(now, y), a.rank(now, x)) })
	g.Requests = make([]deadlock.Request, len(g.tickets))
	at := make([]int, len(g.tickets)) // by arrival
	for i, t := range g.tickets {
		at[arrival[t]] = i
		g.Requests[i] = g.request(t, i)
		g.Requests[i].Arrival = arrival[t]
	}
	for _, i := range at {
		if party := g.Requests[i].Party; party >= 0 {
			g.Parties[party].Requests = append(g.Parties[party].Requests, i)
		}
	}
	return g
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

// index is the place of a device in the arbiter's list.
func (g *graph) index(d *device) int { return slices.Index(g.a.devices, d) }

// of is a limit of a device.
func (g *graph) of(d *device, limit int) int { return limitsOfDevice*g.index(d) + limit }

// ofShare is a limit of a shared budget on a device.
func (g *graph) ofShare(s *shared, d *device, limit int) int {
	first, known := g.share[s.budget]
	if !known {
		first = len(g.Limits)
		g.share[s.budget] = first
		g.Limits = append(g.Limits, make([]deadlock.Limit, limitsOfShare*len(g.a.devices))...)
	}
	return first + limitsOfShare*g.index(d) + limit
}

// addHoldings notes what a party has of the bytes of each device.
func (g *graph) addHoldings(j *job, party int) {
	for _, d := range g.a.devices {
		n := j.committed(d)
		g.Hold(party, g.of(d, limitBytes), accounting.SumOf(n).Add(accounting.SumOf(j.beside(d))))
		for _, sh := range j.shares() {
			if sh != nil {
				g.Hold(party, g.ofShare(sh, d, limitShare), accounting.SumOf(n))
			}
		}
	}
}

// addSlots notes which parties have slots of a device.
func (g *graph) addSlots(i int, d *device) {
	one := accounting.SumOf(1)
	for _, h := range d.holders {
		party, waits := g.party[h.key.job]
		if !waits || party < 0 || !h.waits() {
			continue
		}
		g.Hold(party, limitsOfDevice*i+limitSlots, one)
		if h.claim {
			g.Hold(party, limitsOfDevice*i+limitClaims, one)
		}
	}
	if party, waits := g.party[d.exclusive]; waits && party >= 0 {
		g.Hold(party, limitsOfDevice*i+limitAlone, one)
	}
}

// waits reports whether the holder of a slot, of a job that waits, waits itself. A thread or a
// process that is not known to wait goes on, and will give its slot back.
func (h *holder) waits() bool {
	k := h.key
	waits := func(t *ticket) bool {
		return t.session == k.session && (t.lease == nil || t.lease.scope != rules.ScopeThread || t.thread == k.thread)
	}
	switch {
	case k.session == nil:
		return true
	case !slices.ContainsFunc(k.job.tickets, waits):
		return false
	}
	return k.thread != 0 || k.session.blocked()
}

// request copies what a ticket needs. place is where it stands in the order of service.
func (g *graph) request(t *ticket, place int) deadlock.Request {
	r := deadlock.Request{Party: -1, Holding: t.holding(), OrderOnly: t.turn(), Any: t.any, Spots: len(t.spots)}
	if party, known := g.party[t.job]; known {
		r.Party = party
	}
	for i := range t.spots {
		g.addRoom(&r, t, i)
		g.addOrder(&r, t, i, len(g.tickets)-place)
		g.addLines(&r, t, i)
	}
	return r
}

// addRoom notes what a ticket needs of the limits at one of its spots.
func (g *graph) addRoom(r *deadlock.Request, t *ticket, spot int) {
	s := &t.spots[spot]
	d := s.device
	within := func(limit int, most, n accounting.Bytes) {
		if n > 0 {
			r.Needs = append(r.Needs, deadlock.Need{Limit: limit, Spot: spot, Level: accounting.SumOf(most.Less(n)), Never: n > most, Behind: limit})
		}
	}
	within(g.of(d, limitBytes), d.grantable(), g.takes(t, d))
	for _, sh := range g.shares(t) {
		within(g.ofShare(sh, d, limitShare), sh.limits(d).Max, g.grows(t, d))
	}
	if !s.enters {
		return
	}
	slots := g.of(d, limitSlots)
	fewerThan := func(limit, n int) {
		r.Needs = append(r.Needs, deadlock.Need{Limit: limit, Spot: spot, Level: accounting.SumOf(accounting.Bytes(n - 1)), Behind: slots})
	}
	if d.exclusive != nil && d.exclusive != t.job {
		fewerThan(g.of(d, limitAlone), 1)
	}
	q, most := &t.job.request, d.slotsMax()
	switch {
	case t.kind == wantsJob && q.Exclusive:
		fewerThan(slots, 1)
		return
	case most > 0:
		fewerThan(slots, most)
	case t.kind == wantsJob && (q.Claim || q.Any):
		fewerThan(g.of(d, limitClaims), 1)
	}
	if t.session != nil && t.session.slots > 0 {
		fewerThan(slots, t.session.slots)
	}
}

// addOrder notes the lines in which a ticket stands at one of its spots.
func (g *graph) addOrder(r *deadlock.Request, t *ticket, spot, before int) {
	s := &t.spots[spot]
	d := s.device
	behind := func(stands bool, limit int) {
		if stands {
			r.Needs = append(r.Needs, deadlock.Need{Limit: limit, Spot: spot, Level: accounting.SumOf(accounting.Bytes(before)), Order: true, Behind: limit})
		}
	}
	behind(s.enters, g.of(d, lineSlots))
	behind(s.enters && (s.claims || s.alone), g.of(d, lineClaimers))
	behind(s.enters && s.alone, g.of(d, lineEntrants))
	takes := g.takes(t, d) > 0
	behind(takes, g.of(d, lineBytes))
	behind(takes && t.fresh, g.of(d, lineFresh))
	for _, sh := range g.shares(t) {
		behind(g.grows(t, d) > 0, g.ofShare(sh, d, lineShare))
	}
}

// addLines notes at which lines a ticket keeps out those that come later, as it does now.
func (g *graph) addLines(r *deadlock.Request, t *ticket, spot int) {
	s := &t.spots[spot]
	d, at := s.device, t.waitsOn(s)
	if sh := t.job.shareAt(at); sh != nil {
		r.KeepsOut = append(r.KeepsOut, g.ofShare(sh, d, lineShare))
	}
	if at&(atBudgets|atWish) != 0 {
		return
	}
	if s.enters {
		line := map[*line]int{&d.slots: lineSlots, &d.claimers: lineClaimers, &d.entrants: lineEntrants}[s.entry()]
		r.KeepsOut = append(r.KeepsOut, g.of(d, line))
	}
	if at&atBytes != 0 && at&atSlots == 0 {
		line := lineBytes
		if t.fresh && g.now.Sub(t.place.Since) < g.a.policy.AgeAfter {
			line = lineFresh
		}
		r.KeepsOut = append(r.KeepsOut, g.of(d, line))
	}
}

// shares are the budgets shared with other jobs that a ticket takes of.
func (g *graph) shares(t *ticket) (all []*shared) {
	if t.lease != nil && !g.a.chained(t) {
		return nil
	}
	for _, sh := range t.job.shares() {
		if sh != nil {
			all = append(all, sh)
		}
	}
	return all
}

// takes is by how much less of a device there would be for others.
func (g *graph) takes(t *ticket, d *device) accounting.Bytes {
	switch {
	case t.lease == nil:
		least, budget := t.reserves(d)
		return g.grows(t, d).Plus(g.a.headroomFor(budget, d, least))
	case !g.a.chained(t):
		return t.bytes // a context's, which no budget has a part of
	}
	return g.grows(t, d)
}

// grows is by how much a ticket's party would come to hold more in its budgets.
func (g *graph) grows(t *ticket, d *device) accounting.Bytes {
	if t.lease == nil {
		n, _ := t.reserves(d)
		return n.Less(t.job.committed(d))
	}
	l := t.job.limits(d)
	least, held := min(l.Min, l.Max), accounting.Bytes(0)
	if least > 0 {
		held = t.job.held(d)
	}
	return max(held.Plus(t.bytes), least).Less(max(held, least))
}
