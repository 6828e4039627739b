package accounting

import "iter"

// This file checks requests against limits, and changes what leases hold. node.go has the sums of the tree, and budget.go the limits.
// Package arbiter calls this file under the daemon's lock.

// Refusal is a limit that has no room for a request, with its figures. Limits are checked from the lease's own budget up to the device. The
// caps of a budget come before the budget above it.
type Refusal struct {
	Amount    Amount // Streams or Memory
	Device    int
	Budget    *Budget // nil: the device itself
	Requested Bytes
	Remaining Bytes // most that this limit would have allowed
	Limit     Bytes // memory.max of the budget, or the device's capacity
	Short     Bytes // bytes that must be released below this limit before the request fits; Max: at least that many

	at       *node
	by       Amount          // amount that the limit bounds: Streams, Memory or Present
	heldOnly bool            // the limit counts only held bytes, and not reserved ones
	path     []step          // nodes from the lease up to the limit, with what the request adds to each
	yielded  map[*node]Bytes // for each node the bytes below it that earlier calls of Yield have counted
}

// step is a node with the amount that a request adds to its load.
type step struct {
	at    *node
	delta Bytes
}

// Reserve adds amounts to what a lease holds. Or it returns the limit that refuses them, and changes nothing. It grants them if no budget
// above the lease then holds or reserves more than its Max, and if the sum committed on the device stays within its capacity or does not
// grow. That sum does not grow inside a memory.min, so that such a request is granted even if the capacity has shrunk. The cost depends
// only on the depth of the tree.
func (s *Lease) Reserve(need Amounts) *Refusal {
	if r := s.Check(need); r != nil {
		return r
	}
	for k, n := range need {
		s.shift(Amount(k), n, 0)
	}
	s.away = s.away.Plus(need[Memory] - need[Present])
	return nil
}

// Check returns the refusal that Reserve would return, and changes nothing.
func (s *Lease) Check(need Amounts) (refused *Refusal) {
	for t := range s.fullLimits(need) {
		return s.refuse(t, need[t.amount])
	}
	return nil
}

// Refusals yields each limit that refuses an amount that a lease needs, from its own budget up to the device. It yields nothing if Reserve
// would grant the amounts.
func (s *Lease) Refusals(need Amounts) iter.Seq[*Refusal] {
	return func(yield func(*Refusal) bool) {
		for t := range s.fullLimits(need) {
			if !yield(s.refuse(t, need[t.amount])) {
				return
			}
		}
	}
}

// FullLimits yields the budget of each limit that Refusals would yield, without the figures. nil stands for a limit of the device, or of
// the lease itself.
func (s *Lease) FullLimits(need Amounts) iter.Seq2[Amount, *Budget] {
	return func(yield func(Amount, *Budget) bool) {
		for t := range s.fullLimits(need) {
			if !yield(t.amount, t.at.budget) {
				return
			}
		}
	}
}

// Room returns the most bytes that Reserve would grant now.
func (s *Lease) Room() Bytes {
	left := Max
	for _, k := range [...]Amount{Memory, Present} {
		for at, slack := range s.above(k) {
			left = min(left, at.room(k, slack))
		}
	}
	return left
}

// Available returns by how many bytes the load of a budget on a device (nil: of the device) may grow now.
func (l *Ledger) Available(b *Budget, device int) Bytes {
	if b != nil {
		return b.on(device).room(Memory, 0)
	}
	if d := l.device(device); d != nil {
		return d.room(Present, 0)
	}
	return 0
}

// fullLimit is a limit that has too little room for an amount that a lease needs.
type fullLimit struct {
	amount    Amount
	at        *node
	slack     Bytes // part of the request that lies in reservations below the limit, which the limit already counts
	remaining Bytes // most that the limit would allow
}

// fullLimits yields the limits that have too little room for the amounts that a lease needs.
func (s *Lease) fullLimits(need Amounts) iter.Seq[fullLimit] {
	return func(yield func(fullLimit) bool) {
		for k, n := range need {
			if n == 0 {
				continue
			}
			for at, slack := range s.above(Amount(k)) {
				if left := at.room(Amount(k), slack); n > left && !yield(fullLimit{Amount(k), at, slack, left}) {
					return
				}
			}
		}
	}
}

// MinGrowth returns by how many bytes the load of above (nil: of the device) grows if the memory.min of b is raised to min.
func (l *Ledger) MinGrowth(b *Budget, device int, min Bytes, above *Budget) Bytes {
	d := l.device(device)
	if d == nil {
		return 0
	}
	a := b.open(d)
	return a.Growth(a.raised(limitedAmount(above), min), above)
}

// OverheadGrowth returns by how many bytes the sum of Overhead on a device grows if n bytes of Overhead are reserved for a budget.
func (l *Ledger) OverheadGrowth(b *Budget, device int, n Bytes) Bytes {
	d := l.device(device)
	if d == nil {
		return 0
	}
	a := b.open(d)
	return a.growthOf(Overhead, a.raised(Overhead, n), nil)
}

// raised returns by how much the contribution of a node grows if least of an amount is reserved for it. least counts as at most mostBytes.
func (a *node) raised(k Amount, least Bytes) Bytes {
	return max(a.load[k], min(least, mostBytes)).Less(a.commit(k))
}

// refuse returns the refusal of n of an amount at a limit.
func (s *Lease) refuse(t fullLimit, n Bytes) *Refusal {
	r := &Refusal{Amount: t.amount, by: t.amount, Device: s.dev.index, Budget: t.at.budget, Requested: n, Remaining: t.remaining, Limit: t.at.most(t.amount), at: t.at}
	delta := n
	for a := range s.pathTo(t.at) {
		r.path = append(r.path, step{a, delta})
		delta = delta.Less(a.unusedReserve(t.amount))
	}
	load := t.at.load[t.amount]
	if n <= t.slack {
		r.heldOnly, load, delta = true, t.at.held[t.amount], n
	}
	r.Short = max(load.Plus(delta).Less(r.Limit), n-t.remaining)
	if r.Amount == Present {
		r.Amount = Memory
	}
	return r
}

// Yield returns by how many bytes the sum at the refusing limit would fall if s released n bytes, after the releases in earlier calls of
// Yield. Bytes below a reservation do not count, because they stay reserved. So leases below one reservation can yield less together than
// the sum of what each would yield alone.
func (r *Refusal) Yield(s *Lease, n Bytes) Bytes {
	return r.yield(s, n, func(at *node, n, most Bytes) Bytes {
		was := r.yielded[at]
		r.yielded[at] = was.Plus(n)
		return min(was.Plus(n), most) - min(was, most)
	})
}

// Unyield undoes a call of Yield, and returns by how many bytes the sum would fall less. The calls of Yield for other leases may have come
// before that call or after it.
func (r *Refusal) Unyield(s *Lease, n Bytes) Bytes {
	return r.yield(s, n, func(at *node, n, most Bytes) Bytes {
		was := r.yielded[at]
		r.yielded[at] = was.Less(n)
		return min(was, most) - min(was.Less(n), most)
	})
}

// yield passes n bytes of s up to the refusing limit. At each node with a reservation it calls pass with the bytes that arrive there, and with
// the most by which the contribution of the node can fall. pass returns how many go on.
func (r *Refusal) yield(s *Lease, n Bytes, pass func(at *node, n, most Bytes) Bytes) Bytes {
	n = min(n, s.held[Memory])
	if r.by == Present {
		n = n.Less(s.away) // Release takes these first
	}
	if r.heldOnly {
		return n
	}
	for a := range s.pathTo(r.at) {
		least := a.reserve(r.by)
		if least == 0 {
			continue
		}
		if r.yielded == nil {
			r.yielded = make(map[*node]Bytes)
		}
		n = pass(a, n, a.load[r.by].Plus(r.delta(a)).Less(least))
	}
	return n
}

// delta returns how much the refused request would add to the load of a.
func (r *Refusal) delta(a *node) Bytes {
	for _, s := range r.path {
		if s.at == a {
			return s.delta
		}
	}
	return 0
}

// Force adds n of an amount to what a lease holds, without checking limits. It is for amounts that a client holds already, for example
// after a restart of the daemon. It returns how much it added, which is less than n only if the lease would hold more than any lease can.
func (s *Lease) Force(k Amount, n Bytes) Bytes {
	n = min(n, rows[k].most.Less(s.held[k]))
	s.shift(k, n, 0)
	if k == Memory {
		s.shift(Present, n, 0)
	}
	return n
}

// Release takes back n of an amount from a lease, at most what the lease holds, and returns how much it took back. It takes bytes that are
// away from the device first. If the client freed bytes on the device instead, the ledger counts too little of the device as free, and
// never too much.
func (s *Lease) Release(k Amount, n Bytes) Bytes {
	has := s.held[k]
	if k == Memory {
		has -= s.charged
	}
	n = min(n, has)
	if k == Memory {
		away := min(n, s.away)
		s.away -= away
		s.shift(Present, 0, n-away)
	}
	s.shift(k, 0, n)
	return n
}

// Charge sets how many bytes count against a lease's budgets and its device without having been granted, such as overhead. It does not
// check limits.
func (s *Lease) Charge(n Bytes) {
	n = min(n, mostBytes-s.Granted())
	was := s.charged
	s.dev.charged += n - was
	s.charged = n
	s.shift(Memory, n, was)
	s.shift(Present, n, was)
}

// CheckMin returns nil if a budget's memory.min on a device can be raised to min and its reservation of Overhead to overhead, else the
// narrowest limit that has no room for the difference. An unknown device has no room.
func (l *Ledger) CheckMin(b *Budget, device int, min, overhead Bytes) *Refusal {
	for r := range l.MinRefusals(b, device, min, overhead) {
		return r
	}
	return nil
}

// MinRefusals yields each limit that refuses to raise a budget's memory.min on a device to min and its reservation of Overhead to overhead,
// from the budget itself up to the device. An unknown device has no room.
func (l *Ledger) MinRefusals(b *Budget, device int, min, overhead Bytes) iter.Seq[*Refusal] {
	return func(yield func(*Refusal) bool) {
		d := l.device(device)
		if d == nil {
			yield(&Refusal{Amount: Memory, Device: device, Requested: min, Short: min})
			return
		}
		a := b.open(d)
		for _, k := range [...]Amount{Memory, Present} {
			raised := a.raised(k, min)
			for at, slack := range a.above(k) {
				grow, apart := raised.Less(slack), Bytes(0)
				if at == &d.node && k == Present {
					apart = a.growthOf(Overhead, a.raised(Overhead, overhead), nil)
				}
				short := grow.Plus(apart).Less(at.room(k, 0))
				if short > 0 && !yield(&Refusal{Amount: Memory, by: k, Device: device, Budget: at.budget, Requested: min, Remaining: min.Less(short),
					Limit: at.most(k).Less(apart), Short: short.Plus(at.load[k].Less(at.most(k))), at: at}) {
					return
				}
			}
		}
	}
}

// Overload returns by how much the sum committed on a device exceeds its capacity, as the refusal of a request for 0 bytes. nil: it does
// not exceed it.
func (l *Ledger) Overload(index int) *Refusal {
	d := l.device(index)
	if d == nil {
		return nil
	}
	most := d.most(Present)
	short := d.load[Present].Less(most)
	if short == 0 {
		return nil
	}
	return &Refusal{Amount: Memory, by: Present, Device: index, Limit: most, Short: short, at: &d.node}
}

// Clear takes back everything that a lease holds.
func (s *Lease) Clear() {
	s.Charge(0)
	for k := range nAmounts {
		s.Release(k, Max)
	}
}

// Close removes a lease, with everything that it holds, from the ledger.
func (s *Lease) Close() {
	s.Clear()
	s.Budget().below--
	s.unlink(&s.tree)
	d := s.dev
	last := len(d.leases) - 1
	d.leases[s.pos] = d.leases[last]
	d.leases[s.pos].lease().pos = s.pos
	d.leases[last] = nil
	d.leases = d.leases[:last]
}
