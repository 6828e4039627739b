package arbiter

import (
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/permit"
)

// Of thousands that wait nearly all wait behind others at the limit that stops them: whether that has
// room or not makes no difference to them. They rest in a nest of their device, and are looked at
// when the first of them might no longer, when something of their own job has changed, or now and then.

// nest is those that rest at a device and are alike: who comes first stands for all.
type nest struct {
	kind    nestKind
	tickets []*ticket        // by their arrival
	most    accounting.Bytes // that one of them takes of the budgets that its job shares
}

// nestKind is what those in a nest have in common: they set the same aside, and of two of them the
// one that came first is always served first.
type nestKind struct {
	at       limitSet
	fresh    bool
	asks     permit.Kinds
	priority int
	shares   [3]*shared // with others: of the cgroups the innermost, from which those around it follow
}

// nestOf returns the nest in which a ticket rests.
func (d *device) nestOf(t *ticket) *nest {
	s := t.alone()
	kind := nestKind{s.at, t.fresh, s.asks, t.priority, [...]*shared{t.session.cgroup, t.job.cap, t.job.shared}}
	i := slices.IndexFunc(d.nests, func(n *nest) bool { return n.kind == kind })
	if i < 0 {
		i = len(d.nests)
		d.nests = append(d.nests, &nest{kind: kind})
	}
	return d.nests[i]
}

// first is who comes first; nil: there is nobody.
func (n *nest) first() *ticket {
	if len(n.tickets) == 0 {
		return nil
	}
	return n.tickets[0]
}

// put puts a ticket in its place: mostly the last.
func (n *nest) put(t *ticket) {
	at := len(n.tickets)
	if at > 0 && byArrival(n.tickets[at-1], t) > 0 {
		at, _ = slices.BinarySearchFunc(n.tickets, t, byArrival)
	}
	n.tickets = slices.Insert(n.tickets, at, t)
}

// remove takes a ticket out: mostly the first.
func (n *nest) remove(t *ticket) {
	if n.tickets[0] == t {
		n.tickets[0], n.tickets = nil, n.tickets[1:]
		return
	}
	at, _ := slices.BinarySearchFunc(n.tickets, t, byArrival)
	n.tickets = slices.Delete(n.tickets, at, at+1)
}

// mayRest reports whether a ticket that was judged waits behind others at the narrowest limit that
// refuses it, where no narrower one can come to refuse it without a word.
func (a *Arbiter) mayRest(now time.Time, t *ticket) bool {
	return t.lease != nil && !t.job.stirred && a.stuck(now, t, a.ofShares(t))
}

// stays reports whether the first of a nest need not be judged: of its own job, and of what
// concerns all at the device, nothing has changed, and others still come first.
func (a *Arbiter) stays(now time.Time, t *ticket) bool {
	d := t.alone().device
	return !t.job.stirred && !d.lost && t.heeded() && a.stuck(now, t, t.nest.most)
}

// stuck reports whether a ticket cannot be served before others that wait in front of it. most is what
// it takes at most of the budgets that its job shares.
func (a *Arbiter) stuck(now time.Time, t *ticket, most accounting.Bytes) bool {
	s := t.alone()
	d := s.device
	if s.asks[permit.Slot] && t.session.slots > 0 || t.kind == WantsContexts && a.chained(t) { // its own wish, and what it takes, change with what others do
		return false
	}
	for sh := range t.shares {
		switch {
		case s.at&sh.at != 0:
			return t.waitsForBytes() && a.behind(now, sh.line(d), t) // else it is refused as soon as there is a slot
		case sh.line(d).first != nil || most > a.ledger.Left(sh.budget, d.Index):
			return false
		}
	}
	if s.at&atSlots != 0 {
		return d.slotsMax() > 0 && a.behind(now, &d.entry[permit.Slot], t)
	}
	return s.at == atBytes && t.kind == WantsBytes && (!s.asks[permit.Slot] || d.open()) && a.behindBytes(now, d, t)
}

// undisturbed reports whether a ticket that rests does so whatever else of its job has changed than its own
// lease: the budgets that limit it bring nobody nearer by what they reserve, and have room for it.
func (a *Arbiter) undisturbed(t *ticket) bool {
	if t.nest == nil || t.lease.stirred {
		return false
	}
	need, device := a.ofShares(t), t.alone().device.Index
	held := t.job.budget.Account(device).Held
	fits := func(b *accounting.Budget, held accounting.Bytes) bool {
		l := b.Limits(device)
		return l.Min == 0 && held.Plus(need) <= l.Max
	}
	for sh := range t.shares {
		if !fits(sh.budget, held) {
			return false
		}
	}
	return fits(t.job.budget, held) && fits(t.session.budget, t.session.budget.Account(device).Held)
}

// ofShares is what a ticket takes at most of the budgets that its job shares.
func (a *Arbiter) ofShares(t *ticket) accounting.Bytes {
	if !a.chained(t) {
		return 0
	}
	return t.need()
}

// open reports whether nobody can come to wait for a slot of a device who does not want to have it alone.
func (d *device) open() bool {
	return d.slotsMax() == 0 && len(d.permits[permit.Sole]) == 0 && d.soles == 0
}

// movedPerLook is how many requests are moved, into their nests or out of them, in the time of one look.
const movedPerLook = 32

// settleDown puts those into their nests that the last round found to rest, as many as a call may, and a quarter of that whatever
// else it has done. False: there are more, and no round is to begin before.
func (a *Arbiter) settleDown() bool {
	if len(a.resting) > 0 {
		quarter := a.looksAtOnce / 4
		n := min(max(a.looks-quarter, quarter, 1)*a.movedPerLook, len(a.resting))
		a.spend(n / a.movedPerLook)
		a.putInNests(a.resting[:n])
		a.resting = a.resting[n:]
	}
	return len(a.resting) == 0
}

// putInNests puts some into their nests, which come in the order of those who are awake.
func (a *Arbiter) putInNests(some []*ticket) {
	from, to := 0, len(a.awake)
	if !a.mixed {
		from, _ = slices.BinarySearchFunc(a.awake, some[0], byArrival)
		to, _ = slices.BinarySearchFunc(a.awake, some[len(some)-1], byArrival)
		to = min(to+1, len(a.awake))
	}
	stay := slices.DeleteFunc(a.awake[from:to], func(t *ticket) bool {
		if t.rests {
			t.nest = t.alone().device.nestOf(t)
			t.nest.put(t)
			t.nest.most = max(t.nest.most, a.ofShares(t))
		}
		return t.rests
	})
	a.awake = slices.Delete(a.awake, from+len(stay), to)
}

// wake has a ticket judged the next time that its device is looked at.
func (a *Arbiter) wake(t *ticket) {
	t.rests = false
	n := t.nest
	if n == nil {
		return
	}
	n.remove(t)
	t.nest = nil
	if d := t.alone().device; len(n.tickets) == 0 {
		d.nests = slices.DeleteFunc(d.nests, func(x *nest) bool { return x == n })
	}
	a.awake = a.insert(a.awake, t)
}

// wakeAll does so for all that rest at a device.
func (a *Arbiter) wakeAll(d *device) {
	if len(d.nests) == 0 {
		return
	}
	awake := make([]*ticket, 0, len(a.tickets))
	others := a.awake
	for _, t := range d.queue {
		if t.nest == nil {
			continue
		}
		for len(others) > 0 && a.compare(a.sorted, others[0], t) < 0 {
			awake, others = append(awake, others[0]), others[1:]
		}
		t.nest, t.rests = nil, false
		awake = append(awake, t)
	}
	a.spend(len(d.queue) / a.movedPerLook)
	a.awake, d.nests = append(awake, others...), nil
}

// rousedAtOnce is how many tickets that rest at a device are judged anew each time that the
// arbiter ticks.
const rousedAtOnce = 64

// rouse has a few tickets that rest judged anew, each in its turn: a client may write into its
// words what the arbiter does not hear of.
func (a *Arbiter) rouse(d *device) {
	for range min(rousedAtOnce, len(d.queue)) {
		d.looked++
		a.wake(d.queue[d.looked%len(d.queue)])
	}
}

// walk goes through those who wait in order: all who are awake, and of each nest those who might
// be served, up to the first who still rests. The others of that nest do so as well.
type walk struct {
	a       *Arbiter
	now     time.Time
	devices []*device
	awake   []*ticket
	nests   []*nest // by the first of each
}

// walk goes on with a round.
func (a *Arbiter) walk(now time.Time, r *round) *walk {
	awake := a.awake
	if r.last != nil && !a.mixed { // by arrival alone: those that were seen are the first of them
		at, found := slices.BinarySearchFunc(awake, r.last, byArrival)
		if found {
			at++
		}
		awake = awake[at:]
	}
	a.pumped = append(a.pumped[:0], awake...)
	w := &walk{a: a, now: now, devices: r.devices, awake: a.pumped}
	for _, d := range r.devices {
		w.nests = append(w.nests, d.nests...)
	}
	if r.last != nil {
		seen := func(t *ticket) bool { return a.compare(now, t, r.last) <= 0 }
		if a.mixed {
			w.awake = slices.DeleteFunc(w.awake, seen)
		}
		w.nests = slices.DeleteFunc(w.nests, func(n *nest) bool { return seen(n.first()) })
	}
	slices.SortFunc(w.nests, w.compare)
	return w
}

func (w *walk) compare(x, y *nest) int { return w.a.compare(w.now, x.first(), y.first()) }

// next returns who comes next; nil: that was all.
func (w *walk) next() (t *ticket) {
	for len(w.awake) > 0 && !w.awake[0].on(w.devices) {
		w.awake = w.awake[1:]
	}
	if len(w.awake) > 0 {
		t = w.awake[0]
	}
	if len(w.nests) == 0 || t != nil && w.a.compare(w.now, t, w.nests[0].first()) < 0 {
		w.awake = w.awake[min(1, len(w.awake)):]
		return t
	}
	n := w.nests[0]
	w.nests = w.nests[1:]
	t = n.first()
	if w.a.stays(w.now, t) {
		return t
	}
	if w.a.wake(t); n.first() != nil {
		at, _ := slices.BinarySearchFunc(w.nests, n, w.compare)
		w.nests = slices.Insert(w.nests, at, n)
	}
	return t
}

// on reports whether a ticket waits at one of these devices.
func (t *ticket) on(devices []*device) bool {
	return slices.ContainsFunc(t.spots, func(s spot) bool { return slices.Contains(devices, s.device) })
}

// sole counts who waits to have a device alone (by 1), or does no longer (by -1).
func (t *ticket) sole(by int) {
	if t.kind != wantsJob || !t.job.request.Exclusive {
		return
	}
	for i := range t.spots {
		t.spots[i].device.soles += by
	}
}
