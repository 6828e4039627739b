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

// Budget is a node of the tree of budgets: on each device it has limits and a
// sum of its own. Owner is the caller's, the ledger never looks at it.
type Budget struct {
	Owner any

	parent   *Budget
	accounts []*account // one for each device touched
	children int
	leases   int
}

// account is a budget on one device.
type account struct {
	budget *Budget
	dev    *device
	parent *account // of the parent budget on the same device
	limits Limits
	held   sum // Σ of granted and charged of all leases below
	load   sum // the same of its own leases, plus Σ of its kids' commitments
	leases []*Lease
	kids   []*account
	pos    int // in parent.kids
}

// OpenBudget adds a budget without limits below parent, or as a root when parent is nil.
func (l *Ledger) OpenBudget(parent *Budget) *Budget {
	if parent != nil {
		parent.children++
	}
	return &Budget{parent: parent}
}

// CloseBudget removes a budget and what it has reserved. ErrBusy while leases or budgets are below it.
func (l *Ledger) CloseBudget(b *Budget) error {
	if b.children > 0 || b.leases > 0 {
		return fmt.Errorf("budget with %d budgets and %d leases below it: %w", b.children, b.leases, ErrBusy)
	}
	for _, a := range b.accounts {
		a.detach()
	}
	b.accounts = nil
	if b.parent != nil {
		b.parent.children--
		b.parent = nil
	}
	return nil
}

// MoveBudget puts b, with all that is below it, under another parent (nil: makes
// it a root). What it holds moves along, whether it fits there or not. ErrCycle
// when parent is b or below it.
func (l *Ledger) MoveBudget(b, parent *Budget) error {
	for p := parent; p != nil; p = p.parent {
		if p == b {
			return ErrCycle
		}
	}
	if b.parent != nil {
		b.parent.children--
	}
	if parent != nil {
		parent.children++
	}
	for _, a := range b.accounts {
		a.detach()
	}
	b.parent = parent
	for _, a := range b.accounts {
		a.attach()
	}
	return nil
}

// Parent returns the budget above b, or nil.
func (b *Budget) Parent() *Budget { return b.parent }

// Empty reports that no lease and no budget is below b.
func (b *Budget) Empty() bool { return b.children == 0 && b.leases == 0 }

// SetLimits sets a budget's limits on a device, whatever is held there: with Max
// below that, the budget is over and its sum only falls. ErrNoDevice when there is
// no such device.
func (l *Ledger) SetLimits(b *Budget, device int, limits Limits) error {
	d := l.device(device)
	if d == nil {
		return fmt.Errorf("device %d: %w", device, ErrNoDevice)
	}
	a := b.account(d)
	if a == nil && limits == (Limits{Max: Max}) {
		return nil
	}
	a = b.open(d)
	old := a.commit()
	if limits != a.limits {
		d.eased++
	}
	a.limits = limits
	a.parentLoad(old)
	return nil
}

// Limits returns a budget's limits on a device.
func (b *Budget) Limits(device int) Limits {
	if a := b.find(device); a != nil {
		return a.limits
	}
	return Limits{Max: Max}
}

// Reserved returns what is reserved on a device for a budget and those below it, used or not.
func (b *Budget) Reserved(device int) Bytes {
	if a := b.find(device); a != nil {
		return a.reserved()
	}
	return 0
}

// reserved is what is kept for an account: its own memory.min, or the sum of those below it.
func (a *account) reserved() (below Bytes) {
	for _, kid := range a.kids {
		below = below.Plus(kid.reserved())
	}
	return max(below, a.min())
}

// Account returns a budget's sums on a device.
func (b *Budget) Account(device int) Account {
	a := b.find(device)
	if a == nil {
		return Account{Limit: Max}
	}
	return Account{Limit: a.limits.Max, Held: a.held.bytes(), Committed: a.commit().bytes()}
}

// Load returns what is held or promised on a device below b, its own reservation apart.
func (b *Budget) Load(device int) Bytes {
	if a := b.find(device); a != nil {
		return a.load.bytes()
	}
	return 0
}

// Over reports that the budget holds more than its Max on a device.
func (b *Budget) Over(device int) bool {
	a := b.find(device)
	return a != nil && a.over()
}

// Leases yields the leases below b on a device. The ledger must not change
// meanwhile except by Reserve and Release.
func (b *Budget) Leases(device int) iter.Seq[*Lease] {
	return func(yield func(*Lease) bool) {
		if a := b.find(device); a != nil {
			a.each(yield)
		}
	}
}

// each calls yield for every lease below a, until it returns false.
func (a *account) each(yield func(*Lease) bool) bool {
	for _, lease := range a.leases {
		if !yield(lease) {
			return false
		}
	}
	for _, kid := range a.kids {
		if !kid.each(yield) {
			return false
		}
	}
	return true
}

// find returns b's account on a device, or nil.
func (b *Budget) find(device int) *account {
	for _, a := range b.accounts {
		if a.dev.index == device {
			return a
		}
	}
	return nil
}

// account returns b's account on d, or nil.
func (b *Budget) account(d *device) *account { return b.find(d.index) }

// open returns b's account on d, with those above it, made where they were not there.
func (b *Budget) open(d *device) *account {
	if a := b.account(d); a != nil {
		return a
	}
	a := &account{budget: b, dev: d, limits: Limits{Max: Max}}
	b.accounts = append(b.accounts, a)
	a.attach()
	return a
}

// attach links a below its budget's parent, and adds what it holds there.
func (a *account) attach() {
	if p := a.budget.parent; p != nil {
		a.parent = p.open(a.dev)
		a.pos = len(a.parent.kids)
		a.parent.kids = append(a.parent.kids, a)
	}
	for p := a.parent; p != nil; p = p.parent {
		p.held = p.held.add(a.held)
	}
	a.parentLoad(sum{})
}

// detach is the reverse of attach.
func (a *account) detach() {
	a.dev.eased++
	for p := a.parent; p != nil; p = p.parent {
		p.held = p.held.sub(a.held)
	}
	a.lift(a.commit(), sum{})
	if p := a.parent; p != nil {
		last := len(p.kids) - 1
		p.kids[a.pos] = p.kids[last]
		p.kids[a.pos].pos = a.pos
		p.kids[last] = nil
		p.kids = p.kids[:last]
		a.parent = nil
	}
}

// parentLoad tells those above that a's commitment was old.
func (a *account) parentLoad(old sum) { a.lift(old, a.commit()) }

// lift changes a's part in the loads above it, up to the device, from old to new.
func (a *account) lift(old, new sum) {
	p := a.parent
	for ; p != nil && old != new; p = p.parent {
		was := p.commit()
		p.load = p.load.sub(old).add(new)
		old, new = was, p.commit()
	}
	if p == nil {
		a.dev.committed = a.dev.committed.sub(old).add(new)
	}
}

// commit is what a claims from the one above: what is loaded on it or reserved
// for it, whichever is more.
func (a *account) commit() sum { return larger(a.load, of(a.min())) }

// min is the reservation in force: never more than may be held.
func (a *account) min() Bytes { return min(a.limits.Min, a.limits.Max) }

// over reports that a holds more than its limit.
func (a *account) over() bool { return of(a.limits.Max).less(a.held) }
