package arbiter

import (
	"iter"
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
	decisionLooks = 8
)

// line is those that wait at a limit: who comes later than the first waits too.
type line struct {
	first   *ticket
	known   *ticket // the first, as the last round found that came to its end
	lent    bool    // first is that one, as long as a round is cut short that has not found another
	waits   bool    // somebody does, as last looked at
	watched bool    // the leases below report what they free
}

// round is one time through those who wait at some devices.
type round struct {
	devices []*device
	last    *ticket // that was looked at; nil: none was
}

// lines are a device's, and those there of budgets that somebody shares with others.
func (d *device) lines(shares iter.Seq[*shared]) []*line {
	lines := d.ownLines()
	for sh := range shares {
		lines = append(lines, sh.line(d))
	}
	return lines
}

// linesAt are all lines of a device.
func (a *Arbiter) linesAt(d *device) []*line {
	lines := d.ownLines()
	for _, s := range a.shareds {
		if l := s.lines[d]; l != nil {
			lines = append(lines, l)
		}
	}
	return lines
}

// ownLines are those that no shared budget has.
func (d *device) ownLines() []*line {
	lines := []*line{&d.bytes, &d.fresh}
	for k := range d.entry {
		lines = append(lines, &d.entry[k])
	}
	return lines
}

// serveQueues puts changed rules in force and serves whoever can be served, until nobody can, or for as long as a call
// may take. It costs nothing when nobody waits.
func (a *Arbiter) serveQueues(now time.Time) {
	if a.servingQueues {
		return
	}
	a.servingQueues, a.unfinished, a.looks = true, time.Time{}, a.looksAtOnce
	defer func() { a.servingQueues = false }()
	a.updateJobs(now)
	a.emptyLost(now)
	if len(a.tickets) == 0 {
		if a.round, a.resting = nil, nil; len(a.outdated)+len(a.lagging)+len(a.losing) > 0 {
			a.unfinished = now
		}
		return
	}
	// Each round serves or refuses somebody, or finds more in somebody's way than before:
	// the bound is never reached, but a daemon that hangs would be worse than a late turn.
	again := true
	for bound := 64 + 16*len(a.tickets); again && bound > 0; bound-- {
		a.reclass()
		settled := a.round != nil || a.settleDown()
		if settled && a.round == nil {
			a.round = a.newRound()
		}
		switch again = true; {
		case a.looks <= 0, !settled, a.round == nil && len(a.stirred)+len(a.outdated)+len(a.lagging)+len(a.losing) > 0:
			a.breakOff(now)
			again = false
		case a.round == nil:
			again = a.untangle(now)
		case a.pump(now, a.round):
			a.round.close()
			a.round, a.tangled = nil, true
		}
	}
	a.checkAll(now)
	a.noticesDue = true
}

// mayLook tells whether a call may do more before it looks at those who wait, for which it keeps a quarter: they come to
// their turn however much changes all the time.
func (a *Arbiter) mayLook() bool { return a.looks > a.looksAtOnce/4 }

// spend counts that it did as much as so many looks.
func (a *Arbiter) spend(looks int) { a.looks = max(a.looks-looks, a.looksAtOnce/4) }

// version counts what may have let somebody in at a device.
func (a *Arbiter) version(d *device) uint64 { return a.ledger.Eased(d.Index) + d.eased }

// Unfinished tells that a call has left something to be done: Tick is to be called at once.
func (a *Arbiter) Unfinished() bool { return !a.unfinished.IsZero() }

// newRound begins a round through the queues at which somebody may have been let in; nil: there is none.
func (a *Arbiter) newRound() *round {
	r := &round{}
	for _, d := range a.devices {
		v := a.version(d)
		if len(d.queue) == 0 || !d.dirty && v == d.pumped {
			continue
		}
		d.dirty, d.late, d.pumped = true, false, v
		if d.anew { // its limits may have changed
			d.anew = false
			a.wakeAll(d)
			a.searchAgain()
		}
		r.devices = append(r.devices, d)
	}
	if r.devices == nil {
		return nil
	}
	return r
}

// close ends a round that came through: what changed while it was cut short is for the next one.
func (r *round) close() {
	for _, d := range r.devices {
		d.dirty, d.late = d.late, false
	}
}

// startOver ends a round that did not, since somebody was decided.
func (a *Arbiter) startOver(r *round) {
	for _, d := range r.devices {
		d.dirty = true
	}
	a.round, a.looks = nil, a.looks-decisionLooks
}

// breakOff leaves the rest to the next Tick. What those set aside who were not looked at stays so; and no circle is
// looked for, since what they wait for may be there already.
func (a *Arbiter) breakOff(now time.Time) {
	a.unfinished = now
	a.searchAgain()
	var last *ticket
	if a.round != nil {
		last = a.round.last
		for _, d := range a.round.devices {
			d.dirty = false
		}
	}
	for _, d := range a.devices {
		for _, l := range a.linesAt(d) {
			if l.first == nil && l.known != nil && (last == nil || a.compare(now, l.known, last) > 0) {
				l.first, l.lent = l.known, true
			}
		}
	}
}

// resume has a round go on, or begin.
func (a *Arbiter) resume(now time.Time, r *round) (lines []*line) {
	for _, d := range r.devices {
		d.late = d.late || r.last != nil && d.dirty
		lines = append(lines, a.linesAt(d)...)
	}
	for _, l := range lines {
		switch {
		case r.last == nil:
			l.first, l.waits = nil, false
		case l.lent:
			l.first = nil
		}
		l.lent = false
	}
	if r.last == nil {
		a.sort(now)
	}
	return lines
}

// pump goes through the queues of a round's devices in order, as far as the first ticket that
// is decided: what that takes or leaves may concern one that comes before it; or as far as
// the first that concerns another device too. True: it came to the end, and what is set
// aside on those devices is known.
func (a *Arbiter) pump(now time.Time, r *round) bool {
	lines := a.resume(now, r)
	walk := a.walk(now, r)
	defer clear(a.pumped)
	for a.looks > 0 {
		t := walk.next()
		if t == nil {
			for _, l := range lines {
				l.known, l.watched = l.first, l.watched && l.waits
			}
			return true
		}
		a.looked++
		a.looks--
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
// sets aside has changed on these devices alone.
func (a *Arbiter) step(now time.Time, devices []*device, t *ticket) bool {
	t.age = a.rank(now, t) - t.priority
	if fresh := t.kind == wantsJob || a.holdsNothing(t.job); fresh != t.fresh { // by what was served a moment ago
		a.setFresh(t, fresh)
	}
	whole := t.at()
	for i := range t.spots {
		t.spots[i].was = t.spots[i].at
	}
	v := a.judge(now, t)
	for a.watch(now, t) {
		v = a.judge(now, t)
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
	switch {
	case t.lease != nil && t.at()&(atSlots|atWish) == 0 && t.at() != 0 && !t.waitsForBytes():
		a.refuseTicket(now, t, v.reason, a.refusal(t, v.reason), "")
		return false
	}
	a.press(now, t)
	if t.rests = a.mayRest(now, t); t.rests {
		a.resting = append(a.resting, t)
	}
	inside := true
	for i := range t.spots { // what it sets aside elsewhere has changed
		s := &t.spots[i]
		if s.at == s.was && t.at() == whole {
			continue
		}
		if a.moves(t.job); !slices.Contains(devices, s.device) {
			s.device.dirty, inside = true, false
		}
	}
	return inside
}

// bar has a waiting ticket set aside what it is due on a device.
func (a *Arbiter) bar(now time.Time, d *device, t *ticket) {
	put := func(l *line) {
		if l.first == nil {
			l.first = t
		}
	}
	for i := range t.spots {
		if t.spots[i].device != d {
			continue
		}
		at := t.waitsOn(&t.spots[i])
		d.bytes.waits = d.bytes.waits || at&atBytes != 0
		slots := &d.entry[permit.Slot]
		slots.waits = slots.waits || at&(atSlots|atWish) != 0
		for sh := range t.shares {
			if at&sh.at != 0 {
				sh.line(d).waits = true
			}
		}
		if sh := t.shareAt(at); sh != nil {
			put(sh.line(d))
		}
		if at&(atBudgets|atWish) != 0 {
			continue // it is stuck on a narrower limit, and does not hold up the device's queue
		}
		for k := range t.spots[i].asks.Limits(d.caps()) {
			put(&d.entry[k])
		}
		if at&atBytes == 0 || at&atSlots != 0 {
			continue
		}
		if t.fresh && now.Sub(t.place.Since) < a.policy.AgeAfter {
			put(&d.fresh)
		} else {
			put(&d.bytes)
		}
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
