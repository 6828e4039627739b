package accounting

import (
	"errors"
	"fmt"
	"iter"
	"slices"
)

// Errors of the ledger. They come wrapped in what was concerned.
var (
	ErrNoDevice = errors.New("no such device")
	ErrExists   = errors.New("exists already")
	ErrBusy     = errors.New("still in use")
	ErrCycle    = errors.New("a budget cannot be above itself")
)

// Ledger holds devices, a forest of budgets, and leases. Make one with NewLedger.
// Not safe for concurrent use. Budgets and leases belong to the ledger that opened
// them; using one after it was closed is the caller's mistake.
type Ledger struct {
	// Eased is called after a change that may make room: bytes went back, or a limit was raised. It may be nil.
	Eased func()

	devices []*device // by index
}

// device is one device's account.
type device struct {
	node
	ledger  *Ledger
	index   int
	charged Bytes // Σ of leases' charged
	leases  []Holder
}

// Account is the sum of a device or of a budget on a device, in bytes.
type Account struct {
	Limit     Bytes // the device's capacity less Beside, or memory.max
	Granted   Bytes // handed out (devices only; 0 for budgets)
	Held      Bytes // handed out and charged; a device's without the managed memory that it does not hold now
	Committed Bytes // what is held or promised: never less than Held
	Beside    Bytes // what the device lacks beside that, or will lack: held or reserved
	Streams   int   // devices only
}

// NewLedger returns a ledger without devices.
func NewLedger() *Ledger { return &Ledger{} }

// AddDevice makes a device known. ErrExists when there is one with that index.
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

// SetCapacity sets how many bytes of a device there are to commit. It may fall
// below what is committed: then nothing is granted beyond memory.min until the
// commitment has fallen too. ErrNoDevice when there is no such device.
func (l *Ledger) SetCapacity(index int, capacity Bytes) error {
	d := l.device(index)
	if d == nil {
		return fmt.Errorf("device %d: %w", index, ErrNoDevice)
	}
	if capacity > d.max[Present] {
		defer l.ease()
	}
	d.max[Present] = capacity
	return nil
}

// Device returns a device's sums; the zero Account for one that is not there.
func (l *Ledger) Device(index int) Account {
	d := l.device(index)
	if d == nil {
		return Account{}
	}
	return Account{
		Limit: d.most(Present), Granted: d.held[Memory] - d.charged, Held: d.held[Present],
		Committed: d.load[Present], Beside: d.load[Beside], Streams: int(d.held[Streams]),
	}
}

// ease calls Eased.
func (l *Ledger) ease() {
	if l.Eased != nil {
		l.Eased()
	}
}

// Leases yields the leases on a device. The ledger must not change meanwhile
// except by Reserve and Release.
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

// device returns the device with that index, or nil. There are few: no map.
func (l *Ledger) device(index int) *device {
	for _, d := range l.devices {
		if d.index == index {
			return d
		}
	}
	return nil
}
