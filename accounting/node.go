package accounting

import "iter"

// This file has the sums of the tree. A change of a node's sums is added to all nodes above it at once, so that a check reads only the
// nodes on the way up. reserve.go changes what leases hold, and budget.go links the nodes.

// limitedAmount returns the amount of memory that a budget limits; nil stands for the device.
func limitedAmount(b *Budget) Amount {
	if b == nil {
		return Present
	}
	return Memory
}

// unbounded returns limits that limit nothing.
func unbounded() (all Amounts) {
	for k := range all {
		all[k] = Max
	}
	return all
}

// contribution returns what a adds to the sums of the nodes at which it counts.
func (a *node) contribution(k Amount) contribution { return contribution{a.held[k], a.commit(k)} }

// commit returns the part of a node's contribution that includes reservations: its load, or its own reservation if that is larger.
func (a *node) commit(k Amount) Bytes { return max(a.load[k], a.reserve(k)) }

// reserve returns how much of an amount a node reserves. For memory this is at most the memory limit of the node. Streams are not reserved,
// and a cap reserves nothing.
func (a *node) reserve(k Amount) Bytes {
	switch {
	case k == Streams || a.budget != nil && a.budget.isCap:
		return 0
	case k == Overhead:
		return min(a.minOverhead, mostBytes)
	}
	return min(a.min, a.max[Memory], mostBytes)
}

// most returns the most of an amount that a node may hold. For the memory of a device this is the capacity less the load of Overhead.
func (a *node) most(k Amount) Bytes {
	if k == Present {
		return a.max[k].Less(a.load[Overhead])
	}
	return a.max[k]
}

// unusedReserve returns the part of a's reservation that its load does not use. That much can be added to its load before its contribution
// grows.
func (a *node) unusedReserve(k Amount) Bytes { return a.reserve(k).Less(a.load[k]) }

// over reports whether a holds more than its limit.
func (a *node) over(k Amount) bool { return a.held[k] > a.max[k] }

// replace changes the contribution of a child from was to now, in the sums of this node and of all nodes above it.
func (a *node) replace(k Amount, was, now contribution) {
	if was == now {
		return
	}
	if a.held[k]+now.held < was.held || a.load[k]+now.load < was.load {
		panic("accounting: a sum fell below zero") // continuing would grant memory that does not exist
	}
	before := a.contribution(k)
	a.held[k] += now.held - was.held
	a.load[k] += now.load - was.load
	a.propagate(k, before)
}

// propagate passes a change of a's contribution, which was was before, to the nodes at which a counts.
func (a *node) propagate(k Amount, was contribution) {
	now := a.contribution(k)
	if a.tree.to != nil {
		a.tree.to.replace(k, was, now)
	}
	for i := range a.caps {
		a.caps[i].to.replace(k, was, now)
	}
}

// link makes a count at the node to. The link is stored in by, an empty field of a.
func (a *node) link(by *link, to *node) {
	*by = link{to, len(to.kids)}
	to.kids = append(to.kids, a)
	for k := range nAmounts {
		to.replace(k, contribution{}, a.contribution(k))
	}
}

// unlink removes a link of a, so that a no longer counts at its other end. An empty link is ignored.
func (a *node) unlink(by *link) {
	to := by.to
	if to == nil {
		return
	}
	defer a.dev.ledger.notifyFreed()
	for k := range nAmounts {
		to.replace(k, a.contribution(k), contribution{})
	}
	last := len(to.kids) - 1
	kid := to.kids[last]
	to.kids[by.pos] = kid
	kid.linkTo(to).pos = by.pos
	to.kids[last] = nil
	to.kids = to.kids[:last]
	by.to = nil
}

// linkTo returns the link by which a counts at to; nil: a does not count there.
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

// room returns how much of an amount a request can get at most by the limit of a. slack is the part of the request that uses reservations
// below a. The load of a already includes reservations, so that this part needs no further room. If the load of a budget exceeds its limit,
// because more is reserved below the budget than it may hold, only this part can be granted, and only as far as the held bytes leave room.
// A device grants this part even if its capacity has shrunk since, because it had the room when the reservations were made.
func (a *node) room(k Amount, slack Bytes) Bytes {
	most := a.most(k)
	if a.load[k] > most && a.budget != nil {
		return min(slack, most.Less(a.held[k]))
	}
	return slack.Plus(most.Less(a.load[k]))
}

// limits reports whether a limits an amount. Budgets limit Memory, devices limit Present and Overhead, and both limit Streams.
func (a *node) limits(k Amount) bool {
	return k == Streams || k == limitedAmount(a.budget) || k == Overhead && a.budget == nil
}

// above yields the limits at which a charge of a counts, the narrower ones first. With each limit it yields how much of a charge fits in the
// unused reservations of the nodes between a and that limit. The device comes last. For a lease, the lease's own limit follows, which only
// keeps the lease's sum from overflowing.
func (a *node) above(k Amount) iter.Seq2[*node, Bytes] {
	return func(yield func(*node, Bytes) bool) {
		var slack Bytes
		for at := a; ; slack = slack.Plus(at.unusedReserve(k)) {
			for i := range at.caps {
				if to := at.caps[i].to; to.limits(k) && !yield(to, slack) {
					return
				}
			}
			if at = at.tree.to; at == nil {
				break
			}
			if at.limits(k) && !yield(at, slack) {
				return
			}
		}
		if a.holder != nil {
			yield(a, 0)
		}
	}
}

// Growth returns by how many bytes the load of a budget above a (nil: of the device) grows if a holds n bytes more. Bytes that lie in
// reservations below that budget add nothing.
func (a *node) Growth(n Bytes, budget *Budget) Bytes {
	return a.growthOf(limitedAmount(budget), n, budget)
}

// growthOf is Growth for any amount.
func (a *node) growthOf(k Amount, n Bytes, budget *Budget) Bytes {
	for at, slack := range a.above(k) {
		if at.budget == budget {
			return n.Less(slack)
		}
	}
	return 0
}

// pathTo yields the nodes of the tree from a up to the node to, without to. Caps are omitted, because they reserve nothing.
func (a *node) pathTo(to *node) iter.Seq[*node] {
	return func(yield func(*node) bool) {
		for a = a.tree.to; a != nil && a != to; a = a.tree.to {
			if !yield(a) || a.linkTo(to) != nil {
				return
			}
		}
	}
}

// leases calls yield for each lease at or below a, until yield returns false.
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

// reserved returns the bytes that are reserved for a node: its own memory.min, or the sum of the reservations below it if that is larger.
func (a *node) reserved() (below Bytes) {
	for _, kid := range a.kids {
		below = below.Plus(kid.reserved())
	}
	return max(below, a.reserve(Memory))
}
