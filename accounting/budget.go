package accounting

import (
	"fmt"
	"iter"
)

// Limits bounds what a budget holds on one device, in bytes. Min is reserved for
// it, used or not (a Min above Max counts as Max); Max is the most that it may hold.
type Limits struct {
	Min, Max Bytes
}

// Least is what is reserved.
func (l Limits) Least() Bytes { return min(l.Min, l.Max) }

// Budget is a part of the tree of limits: on each device it has a node, with limits and sums
// of its own. Owner is the caller's, the ledger never looks at it.
type Budget struct {
	Owner any

	up    [2]*Budget // the one above it, and its cap
	caps  bool       // it is one
	nodes []*node    // one for each device touched
	below int        // budgets and leases
}

// OpenBudget adds a budget without limits below parent, or as a root when parent is nil.
func (l *Ledger) OpenBudget(parent *Budget) *Budget {
	b := &Budget{}
	b.move(inTree, parent)
	return b
}

// OpenCap adds a cap: a budget beside the tree that limits what the budgets below it hold and
// promise together, wherever in the tree those are. It reserves nothing, and is below nothing but other caps.
func (l *Ledger) OpenCap() *Budget { return &Budget{caps: true} }

// CloseBudget removes a budget and what it has reserved. ErrBusy while leases or budgets are below it.
func (l *Ledger) CloseBudget(b *Budget) error {
	if !b.Empty() {
		return fmt.Errorf("budget with %d budgets and leases below it: %w", b.below, ErrBusy)
	}
	for which, up := range b.up {
		for _, a := range b.nodes {
			a.unlink(which)
		}
		if up != nil {
			up.below--
		}
	}
	b.nodes, b.up = nil, [2]*Budget{}
	return nil
}

// MoveBudget puts b, with all that is below it, under another parent (nil: makes
// it a root). What it holds moves along, whether it fits there or not. ErrCycle
// when parent is b or below it, or one of them is a cap.
func (l *Ledger) MoveBudget(b, parent *Budget) error {
	if b.caps || parent != nil && parent.caps {
		return ErrCycle
	}
	for p := parent; p != nil; p = p.up[inTree] {
		if p == b {
			return ErrCycle
		}
	}
	b.move(inTree, parent)
	return nil
}

// SetCap puts b, with all that is below it, under a cap too, in place of the one that it had
// (nil: under none). What it holds counts there, whether it fits or not. ErrCycle when cap is
// none, or is b or below it.
func (l *Ledger) SetCap(b, cap *Budget) error {
	if cap != nil && !cap.caps {
		return ErrCycle
	}
	for c := cap; c != nil; c = c.up[toCap] {
		if c == b {
			return ErrCycle
		}
	}
	b.move(toCap, cap)
	return nil
}

// move has b count at another budget.
func (b *Budget) move(which int, up *Budget) {
	if was := b.up[which]; was != nil {
		was.below--
	}
	if up != nil {
		up.below++
	}
	for _, a := range b.nodes {
		a.unlink(which)
	}
	b.up[which] = up
	for _, a := range b.nodes {
		b.link(a, which)
	}
}

// link has a node of b's count where b does: a root's counts at the device.
func (b *Budget) link(a *node, which int) {
	switch up := b.up[which]; {
	case up != nil:
		a.link(which, up.open(a.dev))
	case which == inTree && !b.caps:
		a.link(which, &a.dev.node)
	}
}

// Chain yields b and every budget that it is charged to, the narrower ones first.
func (b *Budget) Chain() iter.Seq[*Budget] {
	return func(yield func(*Budget) bool) {
		for ; b != nil; b = b.up[inTree] {
			for c := b; c != nil; c = c.up[toCap] {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// Empty reports that no lease and no budget is below b.
func (b *Budget) Empty() bool { return b.below == 0 }

// SetLimits sets a budget's limits on a device, whatever is held there: with Max
// below that, the budget is over and its sum only falls. ErrNoDevice when there is
// no such device.
func (l *Ledger) SetLimits(b *Budget, device int, limits Limits) error {
	d := l.device(device)
	if d == nil {
		return fmt.Errorf("device %d: %w", device, ErrNoDevice)
	}
	if limits == b.Limits(device) {
		return nil
	}
	a := b.open(d)
	was := a.claim(Memory)
	a.min, a.max[Memory] = limits.Min, limits.Max
	d.eased++
	a.tell(Memory, was)
	return nil
}

// Limits returns a budget's limits on a device.
func (b *Budget) Limits(device int) Limits {
	a := b.on(device)
	return Limits{Min: a.min, Max: a.max[Memory]}
}

// Reserved returns what is reserved on a device for a budget and those below it, used or not.
func (b *Budget) Reserved(device int) Bytes { return b.on(device).reserved() }

// Account returns a budget's sums on a device.
func (b *Budget) Account(device int) Account {
	a := b.on(device)
	return Account{Limit: a.max[Memory], Held: a.held[Memory].bytes(), Committed: a.commit(Memory).bytes()}
}

// Load returns what is held or promised on a device below b, its own reservation apart.
func (b *Budget) Load(device int) Bytes { return b.on(device).load[Memory].bytes() }

// Over reports that the budget holds more than its Max on a device.
func (b *Budget) Over(device int) bool { return b.on(device).over(Memory) }

// Leases yields the leases below b on a device. The ledger must not change
// meanwhile except by Reserve and Release.
func (b *Budget) Leases(device int) iter.Seq[Holder] {
	return func(yield func(Holder) bool) { b.on(device).leases(yield) }
}

// untouched is the node of a budget on a device where it has none.
var untouched = &node{max: unbounded()}

// on returns b's node on a device, to be read.
func (b *Budget) on(device int) *node {
	for _, a := range b.nodes {
		if a.dev.index == device {
			return a
		}
	}
	return untouched
}

// open returns b's node on d, with those above it, made where they were not there.
func (b *Budget) open(d *device) *node {
	if a := b.on(d.index); a != untouched {
		return a
	}
	a := &node{budget: b, dev: d, max: unbounded()}
	b.nodes = append(b.nodes, a)
	for which := range a.links {
		b.link(a, which)
	}
	return a
}
