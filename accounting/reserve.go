package accounting

import (
	"fmt"
	"iter"
)

// Refusal says which limit refused a request first, going from the lease's own
// budget up to the device, and its figures in bytes.
type Refusal struct {
	Device    int
	Budget    *Budget // nil: the device itself
	Requested Bytes
	Remaining Bytes // the most that this limit would have let through
	Limit     Bytes // memory.max of the budget, or the device's capacity
	// Short is by how much the sum at this limit must fall for the request to pass
	// (Max: that, or more).
	Short Bytes

	at       *account // nil: the device
	plain    bool     // the sum is what is held, reservations apart
	path     []step   // the request on its way up to the limit
	gathered map[*account]sum
}

// step is how much a request adds to the load of one account.
type step struct {
	at    *account
	delta Bytes
}

// Error returns the figures; whose budget it is, only the caller knows.
func (r *Refusal) Error() string {
	what := "a budget"
	if r.Budget == nil {
		what = "the capacity"
	}
	return fmt.Sprintf("device %d: %d bytes requested, %d left of %s of %d bytes",
		r.Device, r.Requested, r.Remaining, what, r.Limit)
}

// Reserve hands n bytes to a lease, or refuses and moves nothing. It passes
// when no budget above the lease comes to hold or promise more than its Max, and
// the device's commitment stays within the capacity or does not grow (which is so
// inside memory.min, whatever became of the capacity). Its cost depends on the
// depth of the tree alone.
func (l *Ledger) Reserve(s *Lease, n Bytes) *Refusal {
	if r := l.Check(s, n); r != nil {
		return r
	}
	s.shift(of(n), sum{})
	s.granted += n
	d := s.account.dev
	d.granted = d.granted.add(of(n))
	return nil
}

// Check returns what Reserve would, and moves nothing.
func (l *Ledger) Check(s *Lease, n Bytes) (refused *Refusal) {
	for r := range l.Refusals(s, n) {
		return r
	}
	return nil
}

// Refusals yields every limit that refuses n bytes, from the lease's own budget
// up to the device; nothing where Reserve would pass.
func (l *Ledger) Refusals(s *Lease, n Bytes) iter.Seq[*Refusal] {
	return func(yield func(*Refusal) bool) {
		var slack Bytes // what the reservations passed so far absorb
		for a := s.account; a != nil; a = a.parent {
			if left := a.room(slack); n > left && !yield(s.refuse(a, n, slack, left)) {
				return
			}
			slack = slack.Plus(of(a.min()).over(a.load).bytes())
		}
		if left := s.account.dev.room(slack); n > left && !yield(s.refuse(nil, n, slack, left)) {
			return
		}
		if left := Max - s.granted - s.charged; n > left { // no client holds 2^64 bytes
			yield(s.refuse(nil, n, Max, left))
		}
	}
}

// Tight yields the budgets that refuse n bytes, from the lease's own up, and nil for
// the device: as Refusals, without the figures.
func (l *Ledger) Tight(s *Lease, n Bytes) iter.Seq[*Budget] {
	return func(yield func(*Budget) bool) {
		var slack Bytes
		for a := s.account; a != nil; a = a.parent {
			if n > a.room(slack) && !yield(a.budget) {
				return
			}
			slack = slack.Plus(of(a.min()).over(a.load).bytes())
		}
		if n > s.account.dev.room(slack) || n > Max-s.granted-s.charged {
			yield(nil)
		}
	}
}

// Room returns the most that Reserve would let through now.
func (l *Ledger) Room(s *Lease) Bytes {
	left, slack := Max-s.granted-s.charged, Bytes(0)
	for a := s.account; a != nil; a = a.parent {
		left = min(left, a.room(slack))
		slack = slack.Plus(of(a.min()).over(a.load).bytes())
	}
	return min(left, s.account.dev.room(slack))
}

// Growth returns by how much the load of a budget above the lease (nil: of the
// device) would grow if the lease were handed n bytes: less than n, or nothing, where
// they are reserved below it already.
func (s *Lease) Growth(n Bytes, above *Budget) Bytes {
	for a := s.account; a != nil && a.budget != above; a = a.parent {
		n = n.Less(of(a.min()).over(a.load).bytes())
	}
	return n
}

// MinGrowth is the same for a budget whose memory.min is raised to min.
func (l *Ledger) MinGrowth(b *Budget, device int, min Bytes, above *Budget) Bytes {
	d := l.device(device)
	if d == nil {
		return 0
	}
	load, was := sum{}, sum{}
	if a := b.account(d); a != nil {
		load, was = a.load, a.commit()
	}
	grow := larger(load, of(min)).over(was).bytes()
	for p := b.parent; p != nil && p != above; p = p.parent {
		if a := p.account(d); a != nil {
			grow = grow.Less(of(a.min()).over(a.load).bytes())
		}
	}
	return grow
}

// room is the most that a lets through, when reservations below it absorb slack.
// What they absorb is loaded on a already, and so passes, unless more was promised
// below than a may hold.
func (a *account) room(slack Bytes) Bytes {
	most := of(a.limits.Max)
	if most.less(a.load) {
		return min(slack, most.over(a.held).bytes())
	}
	return slack.Plus(most.sub(a.load).bytes())
}

// room is the same for the device, which promised no more than it had at the time.
func (d *device) room(slack Bytes) Bytes {
	return slack.Plus(of(d.capacity).over(d.committed).bytes())
}

// refuse builds the refusal of n bytes at a (nil: the device).
func (s *Lease) refuse(at *account, n, slack, left Bytes) *Refusal {
	r := &Refusal{Device: s.Device(), Requested: n, Remaining: left, at: at}
	delta := n
	for a := s.account; a != at && a != nil; a = a.parent {
		r.path = append(r.path, step{a, delta})
		delta = delta.Less(of(a.min()).over(a.load).bytes())
	}
	load, limit := s.account.dev.committed, s.account.dev.capacity
	if at != nil {
		r.Budget = at.budget
		load, limit = at.load, at.limits.Max
		if n <= slack {
			r.plain, load, delta = true, at.held, n
		}
	}
	r.Limit = limit
	r.Short = max(load.add(of(delta)).over(of(limit)).bytes(), n-left)
	return r
}

// Yield returns by how much the sum at the limit that refused would fall, if
// s released n bytes: less than n, or nothing, where they are reserved for its
// budget anyway.
func (r *Refusal) Yield(s *Lease, n Bytes) Bytes {
	n = min(n, s.granted)
	if r.plain {
		return n
	}
	for a := s.account; a != r.at && a != nil; a = a.parent {
		n = min(n, a.load.add(of(r.delta(a))).over(of(a.min())).bytes())
	}
	return n
}

// Gather returns by how much the sum at the limit would fall further, if s released n bytes
// after all those of which Gather was asked before: leases below one reservation yield less
// together than the sum of what each would alone.
func (r *Refusal) Gather(s *Lease, n Bytes) Bytes {
	n = min(n, s.granted)
	if r.plain {
		return n
	}
	for a := s.account; a != r.at && a != nil; a = a.parent {
		least := of(a.min())
		if least == (sum{}) {
			continue
		}
		if r.gathered == nil {
			r.gathered = make(map[*account]sum)
		}
		was := a.load.add(of(r.delta(a))).over(r.gathered[a])
		r.gathered[a] = r.gathered[a].add(of(n))
		n = min(n, was.over(least).bytes())
	}
	return n
}

// delta returns how much the request that was refused adds to a.
func (r *Refusal) delta(a *account) Bytes {
	for _, s := range r.path {
		if s.at == a {
			return s.delta
		}
	}
	return 0
}

// Force hands n bytes to a lease, whatever the limits say: what a client holds
// that lived through a restart. It returns how many it were; less than n only when
// the lease would come to hold more than Max.
func (l *Ledger) Force(s *Lease, n Bytes) Bytes {
	n = min(n, Max-s.granted-s.charged)
	s.shift(of(n), sum{})
	s.granted += n
	d := s.account.dev
	d.granted = d.granted.add(of(n))
	return n
}

// Release takes n bytes back from a lease, at most those that it has, and returns how many it were.
func (l *Ledger) Release(s *Lease, n Bytes) Bytes {
	n = min(n, s.granted)
	s.shift(sum{}, of(n))
	s.granted -= n
	d := s.account.dev
	d.granted = d.granted.sub(of(n))
	return n
}

// Charge sets the bytes that count against the lease's budgets, and the
// device's commitment, without having been handed out, whatever the limits say.
func (l *Ledger) Charge(s *Lease, n Bytes) {
	n = min(n, Max-s.granted)
	s.shift(of(n), of(s.charged))
	s.charged = n
}

// CheckMin tells whether a budget's memory.min on a device could be raised to
// min while the device gives up beside bytes more to nobody's budget: nil, or which
// limit has no room for the difference. A device that is not there has room for nothing.
func (l *Ledger) CheckMin(b *Budget, device int, min, beside Bytes) *Refusal {
	d := l.device(device)
	if d == nil {
		return &Refusal{Device: device, Requested: min, Short: min}
	}
	a := b.account(d)
	load, was := sum{}, sum{}
	if a != nil {
		load, was = a.load, a.commit()
	}
	grow := larger(load, of(min)).over(was).bytes()
	for p := b.parent; p != nil && grow > 0; p = p.parent {
		a := p.account(d)
		if a == nil {
			continue
		}
		if left := of(a.limits.Max).over(a.load).bytes(); grow > left {
			return &Refusal{
				Device: device, Budget: p, Requested: min, Remaining: min - (grow - left),
				Limit: a.limits.Max, Short: grow - left, at: a,
			}
		}
		grow = grow.Less(of(a.min()).over(a.load).bytes())
	}
	if left := of(d.capacity).over(d.committed).bytes(); grow.Plus(beside) > left {
		short := grow.Plus(beside) - left
		return &Refusal{
			Device: device, Requested: min, Remaining: min.Less(short),
			Limit: d.capacity.Less(beside), Short: short,
		}
	}
	return nil
}

// Overload returns what a device's commitment exceeds its capacity by, as the
// refusal of an empty request there; nil when it does not.
func (l *Ledger) Overload(index int) *Refusal {
	d := l.device(index)
	if d == nil || !of(d.capacity).less(d.committed) {
		return nil
	}
	return &Refusal{Device: index, Limit: d.capacity, Short: d.committed.over(of(d.capacity)).bytes()}
}

// shift adds and takes away bytes all the way up from the lease.
func (s *Lease) shift(add, take sum) {
	if add == take {
		return
	}
	a := s.account
	if add.less(take) {
		a.dev.eased++
	}
	was := a.commit()
	a.load = a.load.add(add).sub(take)
	a.parentLoad(was)
	for ; a != nil; a = a.parent {
		a.held = a.held.add(add).sub(take)
	}
	d := s.account.dev
	d.held = d.held.add(add).sub(take)
}
