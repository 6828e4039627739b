package arbiter

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/arbiter/permit"
)

// Those who wait are looked at in rounds: each of them in order, as far as the first that is decided, since what that
// takes or leaves may concern one that comes before it. A round in which thousands are judged would have the daemon's
// lock for long. So a call looks at some hundred, and [Arbiter.Tick] goes on from there. Whoever comes meanwhile stands
// behind those that set something aside when all were looked at last.

// looksAtOnce is how often a call looks at somebody who waits, about 0.3 ms; and decisionLooks as how many looks it
// counts that one is decided: he is told why, and those who hold what he wants are named.
const (
	looksAtOnce   = 128
	decisionLooks = 16
)

// In the time of one look so many leases are looked through, or requests, or processes of a job, and so many requests that rest
// are woken.
const (
	leasesPerLook   = 8
	ticketsPerLook  = 32
	sessionsPerLook = 64
	wakesPerLook    = 8
)

// line is those that wait at a limit: who comes later than the first waits too.
type line struct {
	first   *ticket // as last looked at
	waits   bool    // somebody does, likewise
	watched bool    // the leases below report what they free
}

// leave forgets a ticket that was the first.
func (l *line) leave(t *ticket) {
	if l.first == t {
		l.first = nil
	}
}

// round is one time through those who wait at some devices.
type round struct {
	devices []*device
	last    *ticket // that was looked at; nil: none was
}

// lines calls do with each of a device's, and of those there of budgets that somebody shares with others, where there are some.
func (d *device) lines(shares iter.Seq[*shared], do func(*line)) {
	for k := range d.entry {
		do(&d.entry[k])
	}
	do(&d.bytes)
	do(&d.fresh)
	for sh := range shares {
		if l := sh.lines[d]; l != nil {
			do(l)
		}
	}
}

// serveQueues goes on with what is done in steps and serves whoever can be served, until nobody can, or for as long as a call
// may take. It costs nothing when nobody waits.
func (a *Arbiter) serveQueues(now time.Time) {
	if a.servingQueues {
		return
	}
	a.servingQueues, a.unfinished = true, time.Time{}
	defer func() {
		a.servingQueues = false
		a.steps.Renew()
	}()
	a.steps.GoOn(now)
	if len(a.tickets) == 0 {
		if a.round = nil; a.steps.Some() {
			a.unfinished = now
		}
		return
	}
	// Each round serves or refuses somebody, or finds more in somebody's way than before:
	// the bound is never reached, but a daemon that hangs would be worse than a late turn.
	again := true
	for bound := 64 + 16*len(a.tickets); again && bound > 0; bound-- {
		a.steps.GoOn(now)
		if a.round == nil {
			a.round = a.newRound(now)
		}
		switch again = true; {
		case a.steps.Left <= 0, a.watching, a.round == nil && a.steps.Some():
			a.unfinished, again = now, false
			for _, d := range a.devices {
				a.keepPlaces(now, d)
			}
			a.searchAgain() // what somebody waits for may be there already
		case a.round == nil:
			again = a.untangle(now)
		case a.pump(now, a.round):
			a.close(a.round)
		}
	}
	a.checkAll(now)
	a.noticesDue = true
}

// placesKept is how many of those who wait at a device stand at its lines when a call leaves off.
const placesKept = 16

// keepPlaces puts those at a device's lines who come next there, as they were last judged. Whoever was first may have been
// served, or have given up; who comes before the round goes on stands behind these.
func (a *Arbiter) keepPlaces(now time.Time, d *device) {
	for _, t := range d.queue.All()[:min(d.queue.Len(), placesKept)] {
		a.bar(now, d, t)
	}
	for _, n := range d.nests {
		a.bar(now, d, n.tickets.First())
	}
}

// Unfinished tells that a call has left something to be done: Tick is to be called at once.
func (a *Arbiter) Unfinished() bool { return !a.unfinished.IsZero() }

// newRound begins a round through the queues at which somebody may have been let in; nil: there is none.
func (a *Arbiter) newRound(now time.Time) *round {
	r := &round{}
	for _, d := range a.devices {
		if n := a.ledger.Eased(d.Index) + d.changes; d.queue.Len() > 0 && n != d.looked {
			d.looked = n
			r.devices = append(r.devices, d)
		}
	}
	if r.devices == nil {
		return nil
	}
	for _, d := range r.devices {
		d.lines(maps.Values(a.shareds), func(l *line) { l.waits = false })
	}
	a.sort(now)
	return r
}

// close ends a round that came through: nobody reports any more what nobody waits for.
func (a *Arbiter) close(r *round) {
	for _, d := range r.devices {
		d.lines(maps.Values(a.shareds), func(l *line) { l.watched = l.watched && l.waits })
	}
	a.round, a.tangled = nil, true
}

// startOver ends a round that did not, since somebody was decided.
func (a *Arbiter) startOver(r *round) {
	for _, d := range r.devices {
		d.changes++
	}
	a.round, a.steps.Left = nil, a.steps.Left-decisionLooks
}

// pump goes through the queues of a round's devices in order, as far as the first ticket that
// is decided: what that takes or leaves may concern one that comes before it; or as far as
// the first that concerns another device too. True: it came to the end, and what is set
// aside on those devices is known.
func (a *Arbiter) pump(now time.Time, r *round) bool {
	walk := a.walk(r)
	defer clear(a.walked)
	for a.steps.Left > 0 {
		t := walk.next()
		if t == nil {
			return true
		}
		a.looked++
		a.steps.Left--
		if t.nest == nil && !a.step(now, r.devices, t) {
			a.startOver(r)
			return false
		}
		for _, d := range r.devices {
			a.bar(now, d, t)
		}
		r.last = t
	}
	return false
}

// step judges a waiting ticket, and serves or refuses it. True: it waits on, and what it
// sets aside has changed on these devices alone. While watch is not through it is not decided.
func (a *Arbiter) step(now time.Time, devices []*device, t *ticket) bool {
	if age := a.rank(now, t) - t.priority; age != t.age {
		t.age, a.aged = age, true
	}
	if fresh := t.kind == wantsJob || a.holdsNothing(t.job); fresh != t.fresh { // by what was served a moment ago
		a.setFresh(t, fresh)
	}
	whole := t.at()
	for i := range t.spots {
		t.spots[i].was = t.spots[i].at
	}
	v := a.judge(t)
	if v.spot == nil && a.watch(t) { // then it is judged again; until then it stands where it was found to wait
		a.press(now, t)
		a.moves(t.job)
		t.setDirty()
		for i := range t.spots {
			a.bar(now, t.spots[i].device, t)
		}
		return false
	}
	switch {
	case v.final:
		a.refuseTicket(now, t, v.reason, a.refusal(t, v.reason), "")
		return false
	case v.spot != nil && a.serve(now, t, v.spot):
		return false
	case v.spot != nil && t.short != nil: // its own threads were faster
		v.reason = reasonOf(t.short)
	}
	if t.lease != nil && t.at()&(atSlots|atWish) == 0 && t.at() != 0 && !t.waitsForBytes() {
		a.refuseTicket(now, t, v.reason, a.refusal(t, v.reason), "")
		return false
	}
	a.press(now, t)
	if a.mayRest(t) {
		a.rest(t)
	}
	inside := true
	for i := range t.spots { // what it sets aside elsewhere has changed
		s := &t.spots[i]
		if s.at == s.was && t.at() == whole {
			continue
		}
		if a.moves(t.job); !slices.Contains(devices, s.device) {
			s.device.changes++
			inside = false
		}
	}
	return inside
}

// bar has a waiting ticket set aside what it is due on a device.
func (a *Arbiter) bar(now time.Time, d *device, t *ticket) {
	put := func(l *line) {
		if l.first == nil || a.compare(t, l.first) < 0 {
			l.first = t
		}
	}
	for i := range t.spots {
		if t.spots[i].device != d {
			continue
		}
		for k := range d.entry { // as lines has them, without garbage for each that waits
			d.entry[k].leave(t)
		}
		d.bytes.leave(t)
		d.fresh.leave(t)
		for sh := range t.shares {
			if l := sh.lines[d]; l != nil {
				l.leave(t)
			}
		}
		at := t.waitsOn(&t.spots[i])
		d.bytes.waits = d.bytes.waits || at&atBytes != 0
		slots := &d.entry[permit.Slot]
		slots.waits = slots.waits || at&(atSlots|atWish) != 0
		for is, sh := range t.limits {
			if at&is != 0 {
				sh.line(d).waits = true
			}
		}
		a.keepsOut(now, t, &t.spots[i], put)
	}
}

// keepsOut calls do with each line at which a ticket keeps out those that come later.
func (a *Arbiter) keepsOut(now time.Time, t *ticket, s *spot, do func(*line)) {
	d, at := s.device, t.waitsOn(s)
	if sh := t.shareAt(at); sh != nil {
		do(sh.line(d))
	}
	if at&(atBudgets|atWish) != 0 {
		return // it is stuck on a narrower limit, and does not hold up the device's queue
	}
	for k := range s.asks.Limits(d.caps()) {
		do(&d.entry[k])
	}
	switch {
	case at&atBytes == 0 || at&atSlots != 0:
	case t.fresh && now.Sub(t.place.Since) < a.policy.AgeAfter:
		do(&d.fresh)
	default:
		do(&d.bytes)
	}
}

// waitsOn is what a ticket waits for on a device: one that needs all of its devices waits
// on each for what lacks on any.
func (t *ticket) waitsOn(s *spot) limitSet {
	if t.any {
		return s.at
	}
	return t.at()
}
