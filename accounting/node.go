package accounting

import "iter"

// node is a place in the tree where amounts are summed up and bounded: a lease, a budget on a
// device, a cap on a device, or the device itself. What a node holds counts at those that it
// is linked to: at one in the tree, up to the device, and at a cap beside it, which may count at another cap.
type node struct {
	budget *Budget // nil: a lease, or a device
	holder Holder  // of a lease
	dev    *device

	max  Amounts // the most that may be held
	min  Bytes   // of memory: reserved, used or not
	kept Bytes   // of Beside: reserved, used or not
	held Amounts
	load Amounts // Σ of what the kids claim; of a lease, what it holds

	tree link   // to the budget above, or the device
	caps []link // to the caps, the narrower ones first
	kids []*node
}

// link is where a node counts, and its place among the kids there.
type link struct {
	to  *node
	pos int
}

// claim is what a node adds to those that it is linked to: what is held, and what is held or
// promised.
type claim struct{ held, load Bytes }

// unbounded returns limits that bound nothing.
func unbounded() (all Amounts) {
	for k := range all {
		all[k] = Max
	}
	return all
}

func (a *node) claim(k Amount) claim { return claim{a.held[k], a.commit(k)} }

// commit is what a claims from those that it is linked to: what is loaded on it or reserved
// for it, whichever is more.
func (a *node) commit(k Amount) Bytes { return max(a.load[k], a.reserve(k)) }

// reserve is the reservation in force: never more than may be held, and nothing for a cap.
func (a *node) reserve(k Amount) Bytes {
	switch {
	case k == Streams || a.budget != nil && a.budget.isCap:
		return 0
	case k == Beside:
		return min(a.kept, mostBytes)
	}
	return min(a.min, a.max[Memory], mostBytes)
}

// most returns the most of an amount that may be held: of a device's memory, what Beside leaves of it.
func (a *node) most(k Amount) Bytes {
	if k == Present {
		return a.max[k].Less(a.load[Beside])
	}
	return a.max[k]
}

// absorbs is what a's reservation still takes up of what is loaded on it.
func (a *node) absorbs(k Amount) Bytes { return a.reserve(k).Less(a.load[k]) }

// over reports that a holds more than it may.
func (a *node) over(k Amount) bool { return a.held[k] > a.max[k] }

// replace has a claim of a kid's be another one, here and at all above.
func (a *node) replace(k Amount, was, now claim) {
	if was == now {
		return
	}
	if a.held[k]+now.held < was.held || a.load[k]+now.load < was.load {
		panic("accounting: a sum fell below zero") // going on would hand out memory that is not there
	}
	before := a.claim(k)
	a.held[k] += now.held - was.held
	a.load[k] += now.load - was.load
	a.tell(k, before)
}

// tell tells those above that a's claim was another one.
func (a *node) tell(k Amount, was claim) {
	now := a.claim(k)
	if a.tree.to != nil {
		a.tree.to.replace(k, was, now)
	}
	for i := range a.caps {
		a.caps[i].to.replace(k, was, now)
	}
}

// link makes a count at the node to. by is the link of a for that, and leads nowhere yet.
func (a *node) link(by *link, to *node) {
	*by = link{to, len(to.kids)}
	to.kids = append(to.kids, a)
	for k := range nAmounts {
		to.replace(k, claim{}, a.claim(k))
	}
}

// unlink is the reverse of link.
func (a *node) unlink(by *link) {
	to := by.to
	if to == nil {
		return
	}
	defer a.dev.ledger.ease()
	for k := range nAmounts {
		to.replace(k, a.claim(k), claim{})
	}
	last := len(to.kids) - 1
	kid := to.kids[last]
	to.kids[by.pos] = kid
	kid.linkTo(to).pos = by.pos
	to.kids[last] = nil
	to.kids = to.kids[:last]
	by.to = nil
}

// linkTo returns the link by which a counts at another node; nil: a does not count there.
func (a *node) linkTo(to *node) *link {
	if a.tree.to == to {
		return &a.tree
	}
	for i := range a.caps {
		if a.caps[i].to == to {
			return &a.caps[i]
		}
	}
	return nil
}

// room is the most of an amount that a lets through, when reservations below it absorb slack.
// What they absorb is loaded on a already, and so passes; unless more was promised below than
// a may hold. A device promised no more than it had at the time.
func (a *node) room(k Amount, slack Bytes) Bytes {
	most := a.most(k)
	if a.load[k] > most && a.budget != nil {
		return min(slack, most.Less(a.held[k]))
	}
	return slack.Plus(most.Less(a.load[k]))
}

// bounds reports whether a limits an amount: budgets limit Memory, the device Present and Beside, and both Streams.
func (a *node) bounds(k Amount) bool {
	return k == Streams || k == boundBy(a.budget) || k == Beside && a.budget == nil
}

// above yields the limits that a charge of a's comes to, the narrower ones first, and how much
// of it the reservations passed before absorb. The device is the last; of a lease, its own
// limit comes after that: no client holds 2^64 bytes.
func (a *node) above(k Amount) iter.Seq2[*node, Bytes] {
	return func(yield func(*node, Bytes) bool) {
		var slack Bytes
		for at := a; ; slack = slack.Plus(at.absorbs(k)) {
			for i := range at.caps {
				if to := at.caps[i].to; to.bounds(k) && !yield(to, slack) {
					return
				}
			}
			if at = at.tree.to; at == nil {
				break
			}
			if at.bounds(k) && !yield(at, slack) {
				return
			}
		}
		if a.holder != nil {
			yield(a, 0)
		}
	}
}

// Growth is by how much the load of a budget above a (nil: of the device) grows when a
// claims n bytes more: less than n, or nothing, where they are reserved below it already.
func (a *node) Growth(n Bytes, budget *Budget) Bytes { return a.grows(boundBy(budget), n, budget) }

// grows is Growth for any amount.
func (a *node) grows(k Amount, n Bytes, budget *Budget) Bytes {
	for at, slack := range a.above(k) {
		if at.budget == budget {
			return n.Less(slack)
		}
	}
	return 0
}

// way yields the nodes between a and one that it counts at, but for caps, which absorb nothing.
func (a *node) way(to *node) iter.Seq[*node] {
	return func(yield func(*node) bool) {
		for a = a.tree.to; a != nil && a != to; a = a.tree.to {
			if !yield(a) || a.linkTo(to) != nil {
				return
			}
		}
	}
}

// leases calls yield for every lease at or below a, until it returns false.
func (a *node) leases(yield func(Holder) bool) bool {
	if a.holder != nil {
		return yield(a.holder)
	}
	for _, kid := range a.kids {
		if !kid.leases(yield) {
			return false
		}
	}
	return true
}

// reserved is what is kept for a node: its own memory.min, or the sum of those below it.
func (a *node) reserved() (below Bytes) {
	for _, kid := range a.kids {
		below = below.Plus(kid.reserved())
	}
	return max(below, a.reserve(Memory))
}
