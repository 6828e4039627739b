package accounting

import (
	"fmt"
	"iter"
	"slices"
)

// This file opens, moves and closes the budgets and caps of the tree, and sets their limits. node.go has the sums on each device, and
// reserve.go checks requests against the limits. Package arbiter calls this file.

// Limits are the limits of a budget on one device, in bytes. Min is reserved for the budget, used or not; a Min above Max counts as Max.
// Max is the most that all leases below the budget may hold together.
type Limits struct {
	Min, Max Bytes
}

// Least returns how many bytes are reserved.
func (l Limits) Least() Bytes { return min(l.Min, l.Max) }

// OpenBudget adds a budget without limits below parent, or as a root when parent is nil.
func (l *Ledger) OpenBudget(parent *Budget) *Budget {
	b := &Budget{}
	b.move(parent)
	return b
}

// OpenCap adds a cap: a budget outside the tree that limits what the budgets below it hold and reserve together. These budgets may be
// anywhere in the tree (SetCaps). A cap reserves nothing and has no parent.
func (l *Ledger) OpenCap() *Budget { return &Budget{isCap: true} }

// CloseBudget removes a budget and its reservations. ErrBusy: leases or budgets are below it.
func (l *Ledger) CloseBudget(b *Budget) error {
	if !b.Empty() {
		return fmt.Errorf("budget with %d budgets and leases below it: %w", b.below, ErrBusy)
	}
	b.setCaps(nil)
	for _, a := range b.nodes {
		a.unlink(&a.tree)
		a.dev.charged -= a.own
	}
	if b.up != nil {
		b.up.below--
	}
	b.nodes, b.up = nil, nil
	return nil
}

// MoveBudget puts b, with everything below it, below another parent; nil: b becomes a root. The sums of b count there even if they exceed
// the limits. ErrCycle: parent is b or below b, or is a cap, or b is a cap.
func (l *Ledger) MoveBudget(b, parent *Budget) error {
	if b.isCap || parent != nil && parent.isCap {
		return ErrCycle
	}
	for p := parent; p != nil; p = p.up {
		if p == b {
			return ErrCycle
		}
	}
	b.move(parent)
	return nil
}

// SetCaps puts b, with everything below it, below caps, in place of the caps that b had. The narrower caps come first. The sums of b count
// at each cap even if they exceed its limits. caps must not have a cap twice, nor a cap of a budget above b. ErrCycle: b is a cap, or one
// of caps is not a cap.
func (l *Ledger) SetCaps(b *Budget, caps ...*Budget) error {
	if b.isCap || slices.ContainsFunc(caps, func(c *Budget) bool { return !c.isCap }) {
		return ErrCycle
	}
	b.setCaps(caps)
	return nil
}

// setCaps replaces the caps of b, and links its nodes to them.
func (b *Budget) setCaps(caps []*Budget) {
	for _, c := range caps {
		c.below++
	}
	for _, c := range b.caps {
		c.below--
	}
	b.caps = slices.Clone(caps)
	for _, a := range b.nodes {
		for i := range a.caps {
			a.unlink(&a.caps[i])
		}
		b.linkCaps(a)
	}
}

// linkCaps makes node a of b, which has no cap yet, count at each cap of b.
func (b *Budget) linkCaps(a *node) {
	a.caps = make([]link, len(b.caps))
	for i, c := range b.caps {
		a.link(&a.caps[i], c.open(a.dev))
	}
}

// move puts b below another budget of the tree; nil: b becomes a root.
func (b *Budget) move(up *Budget) {
	if b.up != nil {
		b.up.below--
	}
	if up != nil {
		up.below++
	}
	b.up = up
	for _, a := range b.nodes {
		a.unlink(&a.tree)
		b.linkTree(a)
	}
}

// linkTree makes node a of b count at the budget above b. The node of a root counts at the device, and the node of a cap counts at no other
// node.
func (b *Budget) linkTree(a *node) {
	switch {
	case b.up != nil:
		a.link(&a.tree, b.up.open(a.dev))
	case !b.isCap:
		a.link(&a.tree, &a.dev.node)
	}
}

// Chain yields b and every budget that it is charged to, the narrower ones first.
func (b *Budget) Chain() iter.Seq[*Budget] {
	return func(yield func(*Budget) bool) {
		for ; b != nil; b = b.up {
			if !yield(b) {
				return
			}
			for _, c := range b.caps {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// Empty reports whether no lease and no budget is below b.
func (b *Budget) Empty() bool { return b.below == 0 }

// SetLimits sets a budget's limits on a device. If the leases below it hold more than Max, the budget exceeds its limit and grants nothing
// until enough is released. ErrNoDevice: the device does not exist.
func (l *Ledger) SetLimits(b *Budget, device int, limits Limits) error {
	d := l.device(device)
	if d == nil {
		return fmt.Errorf("device %d: %w", device, ErrNoDevice)
	}
	if limits == b.Limits(device) {
		return nil
	}
	a := b.open(d)
	memory, present := a.contribution(Memory), a.contribution(Present)
	a.min, a.max[Memory] = limits.Min, limits.Max
	d.ledger.notifyFreed()
	a.propagate(Memory, memory)
	a.propagate(Present, present)
	return nil
}

// ReserveOverhead reserves n bytes of Overhead for a budget on a device, in place of its earlier reservation of Overhead. ErrNoDevice: the
// device does not exist.
func (l *Ledger) ReserveOverhead(b *Budget, device int, n Bytes) error {
	d := l.device(device)
	if d == nil {
		return fmt.Errorf("device %d: %w", device, ErrNoDevice)
	}
	if a := b.open(d); n != a.minOverhead {
		was := a.contribution(Overhead)
		a.minOverhead = n
		d.ledger.notifyFreed()
		a.propagate(Overhead, was)
	}
	return nil
}

// ChargeBudget sets how many bytes on a device count against a budget, and against everything above it, and belong to no lease below it.
// It does not check limits. ErrNoDevice: the device does not exist.
func (l *Ledger) ChargeBudget(b *Budget, device int, n Bytes) error {
	d := l.device(device)
	if d == nil {
		return fmt.Errorf("device %d: %w", device, ErrNoDevice)
	}
	a := b.open(d)
	n = min(n, mostBytes)
	was := a.own
	a.own = n
	d.charged += n - was
	for _, k := range [...]Amount{Memory, Present} {
		a.replace(k, contribution{was, was}, contribution{n, n})
	}
	if n < was {
		l.notifyFreed()
	}
	return nil
}

// Charged returns the bytes that ChargeBudget has set for a budget on a device.
func (b *Budget) Charged(device int) Bytes { return b.on(device).own }

// ReservedOverhead returns how many bytes of Overhead are reserved for a budget on a device, and how many of them are unused.
func (b *Budget) ReservedOverhead(device int) (all, left Bytes) {
	a := b.on(device)
	return a.minOverhead, a.unusedReserve(Overhead)
}

// Limits returns a budget's limits on a device.
func (b *Budget) Limits(device int) Limits {
	a := b.on(device)
	return Limits{Min: a.min, Max: a.max[Memory]}
}

// Reserved returns how many bytes are reserved on a device for a budget and the budgets below it, used or not.
func (b *Budget) Reserved(device int) Bytes { return b.on(device).reserved() }

// Account returns a budget's sums on a device.
func (b *Budget) Account(device int) Account {
	a := b.on(device)
	return Account{Limit: a.max[Memory], Held: a.held[Memory], Committed: a.commit(Memory), Overhead: a.commit(Overhead)}
}

// Load returns how many bytes are held or reserved on a device below b, without b's own reservation.
func (b *Budget) Load(device int) Bytes { return b.on(device).load[Memory] }

// Over reports whether a budget holds more than its Max on a device.
func (b *Budget) Over(device int) bool { return b.on(device).over(Memory) }

// Leases yields the leases below b on a device. During the iteration only Reserve and Release may be called.
func (b *Budget) Leases(device int) iter.Seq[Holder] {
	return func(yield func(Holder) bool) { b.on(device).leases(yield) }
}

// untouched stands for the node of a budget on a device where it has none. It must not be changed.
var untouched = &node{max: unbounded()}

// on returns b's node on a device. The caller must not change the node.
func (b *Budget) on(device int) *node {
	for _, a := range b.nodes {
		if a.dev.index == device {
			return a
		}
	}
	return untouched
}

// open returns b's node on d. If it does not exist, open makes it and the nodes above it.
func (b *Budget) open(d *device) *node {
	if a := b.on(d.index); a != untouched {
		return a
	}
	a := &node{budget: b, dev: d, max: unbounded()}
	b.nodes = append(b.nodes, a)
	b.linkTree(a)
	b.linkCaps(a)
	return a
}
