package pressure

import "time"

// Gauge counts, at something, what its pressure follows from.
type Gauge[Of any] struct {
	Of      Of
	waiting int      // who waits there
	going   int      // who goes on there
	tracker *Tracker // nil: nobody ever waited
	changed bool     // since Changes was called
}

// Waits reports whether anybody waits there.
func (g *Gauge[Of]) Waits() bool { return g.waiting > 0 }

// Tracker is what has been added up, as it goes on; nil: nobody ever waited.
func (g *Gauge[Of]) Tracker() *Tracker { return g.tracker }

// Change is a change of a pressure, which the next daemon goes on from. At Since the totals were as told, and from
// then on the states are.
type Change[Of any] struct {
	Of                   Of
	Since                time.Time
	Some, Full           bool
	SomeTotal, FullTotal time.Duration
	Gone                 bool // whose it was is not there any more
}

// Board has gauges changed, and knows which have.
type Board[Of any] struct {
	changed []*Gauge[Of]
	gone    []Change[Of] // of what is not there any more
}

// Count has so many more wait, and go on, at each of some gauges from now on.
func (b *Board[Of]) Count(now time.Time, waiting, going int, at ...*Gauge[Of]) {
	for _, g := range at {
		g.waiting, g.going = g.waiting+waiting, g.going+going
		b.measure(now, g)
	}
}

// measure has a gauge's pressure be as its counts say from now on.
func (b *Board[Of]) measure(now time.Time, g *Gauge[Of]) {
	some := g.waiting > 0
	full := some && g.going == 0
	if g.tracker == nil {
		if !some {
			return
		}
		g.tracker = &Tracker{}
	}
	if s, f := g.tracker.States(); s != some || f != full {
		g.tracker.Set(now, some, full)
		b.note(g)
	}
}

func (b *Board[Of]) note(g *Gauge[Of]) {
	if !g.changed {
		g.changed = true
		b.changed = append(b.changed, g)
	}
}

// Resume has a gauge at which nobody waited yet go on from totals that were reached before.
func (b *Board[Of]) Resume(now time.Time, g *Gauge[Of], some, full time.Duration) {
	if g.tracker == nil {
		t := Resumed(now, some, full)
		g.tracker = &t
		b.note(g)
	}
}

// Forget is for a gauge of what is no more.
func (b *Board[Of]) Forget(g *Gauge[Of]) {
	if g.changed = false; g.tracker != nil {
		b.gone = append(b.gone, Change[Of]{Of: g.Of, Gone: true})
	}
}

// Changes returns what has changed since it was called last, each once.
func (b *Board[Of]) Changes() []Change[Of] {
	changes := b.gone
	for _, g := range b.changed {
		if g.changed {
			g.changed = false
			c := Change[Of]{Of: g.Of, Since: g.tracker.Since()}
			c.Some, c.Full = g.tracker.States()
			c.SomeTotal, c.FullTotal = g.tracker.Totals()
			changes = append(changes, c)
		}
	}
	clear(b.changed)
	b.changed, b.gone = b.changed[:0], nil
	return changes
}
