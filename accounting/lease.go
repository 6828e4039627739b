package accounting

import "fmt"

// This file opens leases, and reads and sets their attributes. reserve.go changes what leases hold, and closes them. Package arbiter calls
// this file.

// OpenLease opens a lease that holds nothing, in the Lease that h embeds. A streamsMax below 1 counts as 1. ErrNoDevice: the device does
// not exist.
func (l *Ledger) OpenLease(h Holder, b *Budget, device int, streamsMax int) error {
	if err := l.Probe(h, b, device); err != nil {
		return err
	}
	s := h.lease()
	s.pos = len(s.dev.leases)
	s.SetStreamsMax(streamsMax)
	s.link(&s.tree, s.tree.to)
	s.dev.leases = append(s.dev.leases, h)
	b.below++
	return nil
}

// lease returns s, so that a type that embeds a Lease is a Holder.
func (s *Lease) lease() *Lease { return s }

// Probe makes the Lease of h stand for one that could be opened below a budget; nil: charged to the device alone. Check and similar methods
// then show what that lease would be granted. It is in no list and cannot hold anything. ErrNoDevice: the device does not exist.
func (l *Ledger) Probe(h Holder, b *Budget, device int) error {
	d := l.device(device)
	if d == nil {
		return fmt.Errorf("device %d: %w", device, ErrNoDevice)
	}
	s := h.lease()
	*s = Lease{node: node{holder: h, dev: d}}
	for k, row := range rows {
		s.max[k] = row.most
	}
	s.tree.to = &d.node
	if b != nil {
		s.tree.to = b.open(d)
	}
	return nil
}

// Granted returns the bytes that were granted to the lease.
func (s *Lease) Granted() Bytes { return s.held[Memory] - s.charged }

// Charged returns the bytes that count against the lease's budgets without having been granted.
func (s *Lease) Charged() Bytes { return s.charged }

// Away returns the granted bytes that do not count against the device.
func (s *Lease) Away() Bytes { return s.away }

// SetAway sets how many granted bytes do not count against the device: managed memory that the device does not hold now. An n above the
// granted bytes counts as all of them.
func (s *Lease) SetAway(n Bytes) {
	n = min(n, s.Granted())
	was := s.away
	s.away = n
	s.shift(Present, was, n)
}

// SetOverhead sets how many bytes of its device a lease takes in addition to its memory. It does not check limits.
func (s *Lease) SetOverhead(n Bytes) { s.shift(Overhead, n, s.held[Overhead]) }

// Budget returns the innermost budget of the lease.
func (s *Lease) Budget() *Budget { return s.tree.to.budget }

// Max returns the smallest memory.max above the lease; accounting.Max: there is none.
func (s *Lease) Max() Bytes {
	least := Max
	for at := range s.above(Memory) {
		if at.budget != nil {
			least = min(least, at.max[Memory])
		}
	}
	return least
}

// Min returns the largest memory.min above the lease.
func (s *Lease) Min() (most Bytes) {
	for at := range s.above(Memory) {
		most = max(most, at.reserve(Memory))
	}
	return most
}

// Over reports whether a budget above the lease exceeds its limit.
func (s *Lease) Over() bool {
	for at := range s.above(Memory) {
		if at.budget != nil && at.over(Memory) {
			return true
		}
	}
	return false
}

// Streams returns how many streams the lease has.
func (s *Lease) Streams() int { return int(s.held[Streams]) }

// StreamsMax returns how many streams the lease may have.
func (s *Lease) StreamsMax() int { return int(s.max[Streams]) }

// SetStreamsMax sets how many streams the lease may have; a value below 1 counts as 1. The lease keeps streams above the maximum.
func (s *Lease) SetStreamsMax(n int) { s.max[Streams] = Bytes(max(1, n)) }

// shift changes how much a lease holds of an amount by add less take, in the lease and in all nodes above it.
func (s *Lease) shift(k Amount, add, take Bytes) {
	if add == take {
		return
	}
	s.replace(k, contribution{take, take}, contribution{add, add})
	if k.Awaited() && add < take {
		s.dev.ledger.notifyFreed()
	}
}
