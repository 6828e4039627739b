package accounting

import "iter"

// Refusal says which limit refused a request first, going from the lease's own
// budget up to the device, a budget's cap before the budget above it, and its figures.
type Refusal struct {
	Amount    Amount // Streams or Memory
	Device    int
	Budget    *Budget // nil: the device itself
	Requested Bytes
	Remaining Bytes // the most that this limit would have let through
	Limit     Bytes // memory.max of the budget, or the device's capacity
	// Short is by how much the sum at this limit must fall for the request to pass
	// (Max: that, or more).
	Short Bytes

	at      *node
	by      Amount // the amount that the limit bounds: Streams, Memory or Present
	plain   bool   // the sum is what is held, reservations apart
	path    []step // the request on its way up to the limit
	yielded map[*node]Bytes
}

// step is how much a request adds to the load of one node.
type step struct {
	at    *node
	delta Bytes
}

// Reserve hands amounts to a lease, or refuses and moves nothing. It passes
// when no budget above the lease comes to hold or promise more than its Max, and
// the device's commitment stays within the capacity or does not grow (which is so
// inside memory.min, whatever became of the capacity). Its cost depends on the
// depth of the tree alone.
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

// Check returns what Reserve would, and moves nothing.
func (s *Lease) Check(need Amounts) (refused *Refusal) {
	for t := range s.tight(need) {
		return s.refuse(t, need[t.amount])
	}
	return nil
}

// Refusals yields every limit that refuses something of what a lease needs, from its own
// budget up to the device; nothing where Reserve would pass.
func (s *Lease) Refusals(need Amounts) iter.Seq[*Refusal] {
	return func(yield func(*Refusal) bool) {
		for t := range s.tight(need) {
			if !yield(s.refuse(t, need[t.amount])) {
				return
			}
		}
	}
}

// Tight yields the budgets that refuse something of what a lease needs, from its own up, and nil
// for the device or the lease itself: as Refusals, without the figures.
func (s *Lease) Tight(need Amounts) iter.Seq2[Amount, *Budget] {
	return func(yield func(Amount, *Budget) bool) {
		for t := range s.tight(need) {
			if !yield(t.amount, t.at.budget) {
				return
			}
		}
	}
}

// Room returns the most bytes that Reserve would let through now.
func (s *Lease) Room() Bytes {
	left := Max
	for _, k := range [...]Amount{Memory, Present} {
		for at, slack := range s.above(k) {
			left = min(left, at.room(k, slack))
		}
	}
	return left
}

// Left returns the most bytes by which the load of a budget on a device (nil: of the device) may
// grow now.
func (l *Ledger) Left(b *Budget, device int) Bytes {
	if b != nil {
		return b.on(device).room(Memory, 0)
	}
	if d := l.device(device); d != nil {
		return d.room(Present, 0)
	}
	return 0
}

// tight is a limit that has no room for what is needed of an amount.
type tight struct {
	amount      Amount
	at          *node
	slack, left Bytes
}

// tight yields the limits that have no room for what a lease needs.
func (s *Lease) tight(need Amounts) iter.Seq[tight] {
	return func(yield func(tight) bool) {
		for k, n := range need {
			if n == 0 {
				continue
			}
			for at, slack := range s.above(Amount(k)) {
				if left := at.room(Amount(k), slack); n > left && !yield(tight{Amount(k), at, slack, left}) {
					return
				}
			}
		}
	}
}

// MinGrowth is [Lease.Growth] for a budget whose memory.min is raised to min.
func (l *Ledger) MinGrowth(b *Budget, device int, min Bytes, above *Budget) Bytes {
	d := l.device(device)
	if d == nil {
		return 0
	}
	a := b.open(d)
	return a.Growth(a.raised(boundBy(above), min), above)
}

// BesideGrowth returns by how much a device lacks more bytes beside its memory if a budget comes to have n of them reserved.
func (l *Ledger) BesideGrowth(b *Budget, device int, n Bytes) Bytes {
	d := l.device(device)
	if d == nil {
		return 0
	}
	a := b.open(d)
	return a.grows(Beside, a.raised(Beside, n), nil)
}

// raised returns by how much a claims more of an amount when it comes to have at least so much reserved, up to mostBytes.
func (a *node) raised(k Amount, least Bytes) Bytes {
	return max(a.load[k], min(least, mostBytes)).Less(a.commit(k))
}

// refuse builds the refusal of n at a limit.
func (s *Lease) refuse(t tight, n Bytes) *Refusal {
	r := &Refusal{Amount: t.amount, by: t.amount, Device: s.dev.index, Budget: t.at.budget, Requested: n, Remaining: t.left, Limit: t.at.most(t.amount), at: t.at}
	delta := n
	for a := range s.way(t.at) {
		r.path = append(r.path, step{a, delta})
		delta = delta.Less(a.absorbs(t.amount))
	}
	load := t.at.load[t.amount]
	if n <= t.slack {
		r.plain, load, delta = true, t.at.held[t.amount], n
	}
	r.Short = max(load.Plus(delta).Less(r.Limit), n-t.left)
	if r.Amount == Present {
		r.Amount = Memory
	}
	return r
}

// Yield returns by how much the sum at the limit that refused would fall further if s released n bytes after all those of which Yield was asked
// before: less than n, or nothing, if they are reserved anyway. Leases below one reservation yield less together than each would alone.
func (r *Refusal) Yield(s *Lease, n Bytes) Bytes {
	n = min(n, s.Granted())
	if r.by == Present {
		n = n.Less(s.away) // Release takes these first
	}
	if r.plain {
		return n
	}
	for a := range s.way(r.at) {
		least := a.reserve(r.by)
		if least == 0 {
			continue
		}
		if r.yielded == nil {
			r.yielded = make(map[*node]Bytes)
		}
		was := a.load[r.by].Plus(r.delta(a)).Less(r.yielded[a])
		r.yielded[a] += n
		n = min(n, was.Less(least))
	}
	return n
}

// delta returns how much the request that was refused adds to a.
func (r *Refusal) delta(a *node) Bytes {
	for _, s := range r.path {
		if s.at == a {
			return s.delta
		}
	}
	return 0
}

// Force hands n of an amount to a lease, whatever the limits say: what a client holds
// that lived through a restart. It returns how many it were; less than n only when
// the lease would come to hold more than it ever can.
func (s *Lease) Force(k Amount, n Bytes) Bytes {
	n = min(n, rows[k].most.Less(s.held[k]))
	s.shift(k, n, 0)
	if k == Memory {
		s.shift(Present, n, 0)
	}
	return n
}

// Release takes n of an amount back from a lease, at most what it has, and returns how much it took. Bytes that are away from the
// device are taken first: if the client freed others, too little of the device is believed to be free, never too much.
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

// Charge sets the bytes that count against the lease's budgets, and the
// device's commitment, without having been handed out, whatever the limits say.
func (s *Lease) Charge(n Bytes) {
	n = min(n, mostBytes-s.Granted())
	was := s.charged
	s.dev.charged += n - was
	s.charged = n
	s.shift(Memory, n, was)
	s.shift(Present, n, was)
}

// CheckMin tells whether a budget's memory.min on a device could be raised to
// min, and its reservation of Beside to beside: nil, or which limit has no room for
// the difference. A device that is not there has room for nothing.
func (l *Ledger) CheckMin(b *Budget, device int, min, beside Bytes) *Refusal {
	d := l.device(device)
	if d == nil {
		return &Refusal{Amount: Memory, Device: device, Requested: min, Short: min}
	}
	a := b.open(d)
	for _, k := range [...]Amount{Memory, Present} {
		raised := a.raised(k, min)
		for at, slack := range a.above(k) {
			grow, apart := raised.Less(slack), Bytes(0)
			if at == &d.node && k == Present {
				apart = a.grows(Beside, a.raised(Beside, beside), nil)
			}
			if short := grow.Plus(apart).Less(at.room(k, 0)); short > 0 {
				return &Refusal{Amount: Memory, by: k, Device: device, Budget: at.budget, Requested: min, Remaining: min.Less(short),
					Limit: at.most(k).Less(apart), Short: short, at: at}
			}
		}
	}
	return nil
}

// Overload returns what a device's commitment exceeds its capacity by, as the
// refusal of an empty request there; nil when it does not.
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

// shift adds and takes away of an amount all the way up from the lease.
func (s *Lease) shift(k Amount, add, take Bytes) {
	if add == take {
		return
	}
	s.replace(k, claim{take, take}, claim{add, add})
	if k.Awaited() && add < take {
		s.dev.ledger.ease()
	}
}
