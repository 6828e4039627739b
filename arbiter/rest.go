package arbiter

import (
	"slices"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/queue"
)

// Of thousands that wait nearly all wait behind others at the limit that stops them: whether that has
// room or not makes no difference to them. They rest in a nest of their device, and are looked at
// when the first of them might no longer, when something of their own job has changed, or now and then.

// nest is those that rest at a device and are alike: who comes first stands for all.
type nest struct {
	kind    nestKind
	tickets queue.Queue[*ticket]
	most    accounting.Bytes // that one of them takes of the budgets that its job shares
	next    *ticket          // of them in a walk
}

// nestKind is what those in a nest have in common: they set the same aside, and of two of them the
// one that came first is always served first.
type nestKind struct {
	at       limitSet
	fresh    bool
	asks     permit.Kinds
	priority int
	shares   [maxNested + 2]*shared // budgets that its process and job share with others
	era      int                    // of the device, when they came to rest
}

// renew has all who wait at a device judged anew, also those that rest: its limits may have changed.
func (a *Arbiter) renew(d *device) {
	d.changes++
	d.era++
	a.searchAgain()
}

// rest puts a ticket into the nest in which it rests.
func (a *Arbiter) rest(t *ticket) {
	s := t.alone()
	d := s.device
	kind := nestKind{s.at, t.fresh, s.asks, t.priority, t.sharedWith(), d.era}
	i := slices.IndexFunc(d.nests, func(n *nest) bool { return n.kind == kind })
	if i < 0 {
		i = len(d.nests)
		d.nests = append(d.nests, &nest{kind: kind, tickets: queue.New(a.compare)})
	}
	t.nest = d.nests[i]
	t.nest.tickets.Insert(t)
	t.nest.most = max(t.nest.most, a.ofShares(t))
	a.awake.Remove(t)
}

// sharedWith returns the budgets that a ticket's process and job share with others.
func (t *ticket) sharedWith() (all [maxNested + 2]*shared) {
	i := 0
	for sh := range t.shares {
		all[i] = sh
		i++
	}
	return all
}

// wake has a ticket judged the next time that its device is looked at.
func (a *Arbiter) wake(t *ticket) {
	n := t.nest
	if n == nil {
		return
	}
	n.tickets.Remove(t)
	t.nest = nil
	if d := t.alone().device; n.tickets.Len() == 0 {
		d.nests = slices.DeleteFunc(d.nests, func(x *nest) bool { return x == n })
	}
	a.awake.Insert(t)
}

// mayRest reports whether a ticket that was judged waits behind others at the narrowest limit that
// refuses it, where no narrower one can come to refuse it without a word.
func (a *Arbiter) mayRest(t *ticket) bool {
	return t.lease != nil && len(t.session.cgroups) <= maxNested && !t.job.stirred && a.stuck(t, a.ofShares(t))
}

// stays reports whether the first of a nest need not be judged: of its own job, and of what
// concerns all at the device, nothing has changed, and others still come first.
func (a *Arbiter) stays(t *ticket) bool {
	d := t.alone().device
	return !t.job.stirred && !d.lost && t.nest.kind.era == d.era && t.heeded() && a.stuck(t, t.nest.most)
}

// stuck reports whether a ticket cannot be served before others that wait in front of it. most is what
// it takes at most of the budgets that its job shares.
func (a *Arbiter) stuck(t *ticket, most accounting.Bytes) bool {
	s := t.alone()
	d := s.device
	if s.asks[permit.Slot] && t.session.slots > 0 || t.kind == WantsContexts && a.chained(t) { // its own wish, and what it takes, change with what others do
		return false
	}
	for at, sh := range t.limits {
		switch {
		case s.at&at != 0:
			return t.waitsForBytes() && a.behind(sh.line(d), t) // else it is refused as soon as there is a slot
		case a.behind(sh.line(d), t) || most > a.ledger.Left(sh.budget, d.Index):
			return false
		}
	}
	if s.at&atSlots != 0 {
		return d.slotsMax() > 0 && a.behind(&d.entry[permit.Slot], t)
	}
	return s.at == atBytes && t.kind == WantsBytes && (!s.asks[permit.Slot] || d.open()) && a.behindBytes(d, t)
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

// rousedAtOnce is how many tickets that rest at a device are judged anew each time that the
// arbiter ticks.
const rousedAtOnce = 64

// rouse has a few tickets that rest judged anew, each in its turn: a client may write into its
// words what the arbiter does not hear of.
func (a *Arbiter) rouse(d *device) {
	for range min(rousedAtOnce, d.queue.Len()) {
		d.roused++
		a.wake(d.queue.All()[d.roused%d.queue.Len()])
	}
}

// walk goes through those who wait in order: all who are awake, and of each nest those who might
// be served, up to where its first still rests. The others of that nest do so as well.
type walk struct {
	a       *Arbiter
	devices []*device
	awake   []*ticket
	nests   []*nest // by who comes next of each
}

// walk goes on with a round.
func (a *Arbiter) walk(r *round) *walk {
	awake := a.awake.All()
	if r.last != nil {
		awake = a.awake.After(r.last)
	}
	a.walked = append(a.walked[:0], awake...)
	w := &walk{a: a, devices: r.devices, awake: a.walked}
	for _, d := range r.devices {
		for _, n := range d.nests {
			if n.next = n.after(r.last); n.next != nil {
				w.nests = append(w.nests, n)
			}
		}
	}
	slices.SortFunc(w.nests, w.compare)
	return w
}

// after is who comes after a ticket (nil: first) in a nest; nil: nobody does.
func (n *nest) after(t *ticket) *ticket {
	if t == nil {
		return n.tickets.First()
	}
	if rest := n.tickets.After(t); len(rest) > 0 {
		return rest[0]
	}
	return nil
}

func (w *walk) compare(x, y *nest) int { return w.a.compare(x.next, y.next) }

// next returns who comes next; nil: that was all.
func (w *walk) next() *ticket {
	for len(w.awake) > 0 && !w.awake[0].on(w.devices) {
		w.awake = w.awake[1:]
	}
	for len(w.nests) > 0 && (len(w.awake) == 0 || w.a.compare(w.nests[0].next, w.awake[0]) < 0) {
		n := w.nests[0]
		w.nests = w.nests[1:]
		t, first := n.next, n.tickets.First()
		if w.a.stays(first) {
			if t == first {
				return t
			}
			continue // it was looked at before these
		}
		w.a.wake(t)
		if n.next = n.after(t); n.next != nil {
			at, _ := slices.BinarySearchFunc(w.nests, n, w.compare)
			w.nests = slices.Insert(w.nests, at, n)
		}
		return t
	}
	if len(w.awake) == 0 {
		return nil
	}
	t := w.awake[0]
	w.awake = w.awake[1:]
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
