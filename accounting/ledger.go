package accounting

import (
	"fmt"
	"iter"
	"slices"
)

// This file makes a ledger, and adds, sizes and reads its devices. The arbiter calls all of it under the daemon's lock.

// NewLedger returns a ledger without devices.
func NewLedger() *Ledger { return &Ledger{} }

// AddDevice adds a device. ErrExists: the index is in use.
func (l *Ledger) AddDevice(index int, capacity Bytes) error {
	at, found := slices.BinarySearchFunc(l.devices, index, func(d *device, i int) int { return d.index - i })
	if found {
		return fmt.Errorf("device %d: %w", index, ErrExists)
	}
	d := &device{ledger: l, index: index, node: node{max: unbounded()}}
	d.max[Present] = capacity
	l.devices = slices.Insert(l.devices, at, d)
	return nil
}

// SetCapacity sets how many bytes of a device can be committed. If the capacity falls below what is committed, nothing is granted above
// memory.min until the commitment has fallen too. ErrNoDevice: the device does not exist.
func (l *Ledger) SetCapacity(index int, capacity Bytes) error {
	d := l.device(index)
	if d == nil {
		return fmt.Errorf("device %d: %w", index, ErrNoDevice)
	}
	if capacity > d.max[Present] {
		defer l.notifyFreed()
	}
	d.max[Present] = capacity
	return nil
}

// Device returns the sums of a device; the zero Account if the device does not exist.
func (l *Ledger) Device(index int) Account {
	d := l.device(index)
	if d == nil {
		return Account{}
	}
	return Account{
		Limit: d.most(Present), Granted: d.held[Memory] - d.charged, Held: d.held[Present],
		Committed: d.load[Present], Overhead: d.load[Overhead], Streams: int(d.held[Streams]),
	}
}

// Leases yields the leases on a device. During the iteration only Reserve and Release may be called.
func (l *Ledger) Leases(index int) iter.Seq[Holder] {
	return func(yield func(Holder) bool) {
		d := l.device(index)
		if d == nil {
			return
		}
		for _, lease := range d.leases {
			if !yield(lease) {
				return
			}
		}
	}
}
