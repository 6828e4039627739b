package accounting

import "fmt"

// Lease is what one client holds on one device, charged to a budget and to all
// above it. Owner is the caller's, the ledger never looks at it.
type Lease struct {
	Owner any

	account    *account
	granted    Bytes
	charged    Bytes
	streams    int
	streamsMax int
	pos        int // in account.leases
	devPos     int // in account.dev.leases
}

// OpenLease opens a lease that holds nothing. A streamsMax below 1 becomes 1.
// ErrNoDevice when there is no such device.
func (l *Ledger) OpenLease(b *Budget, device int, streamsMax int) (*Lease, error) {
	d := l.device(device)
	if d == nil {
		return nil, fmt.Errorf("device %d: %w", device, ErrNoDevice)
	}
	a := b.open(d)
	lease := &Lease{account: a, pos: len(a.leases), devPos: len(d.leases), streamsMax: max(1, streamsMax)}
	a.leases = append(a.leases, lease)
	d.leases = append(d.leases, lease)
	b.leases++
	return lease, nil
}

// Probe stands for a lease that could be opened below a budget: Check and the like tell what
// that one would be handed. It is in no list and cannot hold anything. nil when there is no
// such device.
func (l *Ledger) Probe(b *Budget, device int) *Lease {
	d := l.device(device)
	if d == nil {
		return nil
	}
	return &Lease{account: b.open(d)}
}

// CloseLease takes a lease and all that it holds out of the ledger.
func (l *Ledger) CloseLease(lease *Lease) {
	l.Charge(lease, 0)
	l.Release(lease, lease.granted)
	l.GiveStreams(lease, lease.streams)
	a, d := lease.account, lease.account.dev
	last := len(a.leases) - 1
	a.leases[lease.pos] = a.leases[last]
	a.leases[lease.pos].pos = lease.pos
	a.leases[last] = nil
	a.leases = a.leases[:last]
	last = len(d.leases) - 1
	d.leases[lease.devPos] = d.leases[last]
	d.leases[lease.devPos].devPos = lease.devPos
	d.leases[last] = nil
	d.leases = d.leases[:last]
	a.budget.leases--
}

// Granted returns the bytes handed out to the lease.
func (s *Lease) Granted() Bytes { return s.granted }

// Charged returns the bytes that count against the lease's budgets without
// having been handed out.
func (s *Lease) Charged() Bytes { return s.charged }

// Device returns the index of the lease's device.
func (s *Lease) Device() int { return s.account.dev.index }

// Budget returns the budget that the lease charges first.
func (s *Lease) Budget() *Budget { return s.account.budget }

// Max returns the smallest memory.max above the lease; Max where there is none.
func (s *Lease) Max() Bytes {
	least := Max
	for a := s.account; a != nil; a = a.parent {
		least = min(least, a.limits.Max)
	}
	return least
}

// Min returns the largest memory.min above the lease.
func (s *Lease) Min() Bytes {
	var most Bytes
	for a := s.account; a != nil; a = a.parent {
		most = max(most, a.min())
	}
	return most
}

// Over reports that a budget above the lease holds more than its limit.
func (s *Lease) Over() bool {
	for a := s.account; a != nil; a = a.parent {
		if a.over() {
			return true
		}
	}
	return false
}

// Streams returns how many streams the lease has.
func (s *Lease) Streams() int { return s.streams }

// StreamsMax returns how many streams the lease may have.
func (s *Lease) StreamsMax() int { return s.streamsMax }

// SetStreamsMax sets how many streams the lease may have; below 1 becomes 1. What
// it has beyond that it keeps.
func (s *Lease) SetStreamsMax(n int) { s.streamsMax = max(1, n) }

// TakeStreams counts n more streams, or none and returns false when that were
// more than the lease may have. A negative n takes none.
func (l *Ledger) TakeStreams(s *Lease, n int) bool {
	if n < 0 || n > s.streamsMax-s.streams {
		return false
	}
	s.streams += n
	s.account.dev.streams += n
	return true
}

// ForceStreams counts n more streams, allowed or not: those of a client that
// lived through a restart. Negative counts are ignored.
func (l *Ledger) ForceStreams(s *Lease, n int) {
	n = min(max(n, 0), maxStreams-s.streams)
	s.streams += n
	s.account.dev.streams += n
}

// maxStreams bounds the streams that a client can claim for one lease, so that
// no sum of them overflows.
const maxStreams = 1 << 30

// GiveStreams counts n fewer streams, at most those that there are, and returns how many it were.
func (l *Ledger) GiveStreams(s *Lease, n int) int {
	n = min(max(n, 0), s.streams)
	s.streams -= n
	s.account.dev.streams -= n
	return n
}
