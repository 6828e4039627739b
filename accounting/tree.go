package accounting

import "errors"

// This file has the types of the ledger: the ledger, devices, budgets and leases, and the nodes and links of the tree that they form. The
// types refer to each other, so that they are all in this file. node.go has the sums of the tree. ledger.go, budget.go and lease.go open,
// close and read devices, budgets and leases. reserve.go checks requests and changes what leases hold.

// Ledger has the devices, a forest of budgets, and the leases. NewLedger makes one. It is not safe for concurrent use. Budgets and leases
// belong to the ledger that opened them, and must not be used after they were closed.
type Ledger struct {
	// Freed is called after a change that may make room: bytes were released, or a limit was raised. nil: no call is made.
	Freed func()

	devices []*device // by index
}

// device is the account of one device.
type device struct {
	node
	ledger  *Ledger
	index   int
	charged Bytes // sum of charged of the leases and of the budgets
	leases  []Holder
}

// Budget is a part of the tree of limits. On each device it has a node with its own limits and sums.
type Budget struct {
	Owner any // data of the caller, which the ledger does not read

	up    *Budget   // parent in the tree; nil: a root
	caps  []*Budget // caps outside the tree at which the sums count too; the narrower ones first
	isCap bool
	nodes []*node // a node for each device that the budget was used on
	below int     // number of budgets and leases directly below
}

// Lease is the account of one client on one device. It is charged to a budget and to all budgets above it. The caller embeds it in its own
// type.
type Lease struct {
	node
	charged Bytes // part of the held memory that was not granted
	away    Bytes // part of the granted memory that the device does not hold now (managed memory)
	pos     int   // in dev.leases
}

// Holder is a type that embeds a Lease. The ledger yields Holders when it yields leases.
type Holder interface{ lease() *Lease }

// node is a place in the tree where amounts are summed and limited: a lease, a budget on a device, a cap on a device, or the device itself.
// Its sums count at its parent in the tree, up to the device, and at its caps. A cap counts at no other node.
type node struct {
	budget *Budget // nil: the node is a lease or a device
	holder Holder  // the lease, if the node is one; else nil
	dev    *device

	max         Amounts // most that may be held
	min         Bytes   // reserved memory, used or not
	minOverhead Bytes   // reserved part of Overhead, used or not
	own         Bytes   // of a budget: memory that counts against it and belongs to no lease
	held        Amounts // amounts that the leases at or below this node hold, and own of the budgets
	load        Amounts // sum of the contributions of the kids, and own; for a lease, what it holds

	tree link    // to the budget above, or to the device
	caps []link  // to the caps, the narrower ones first
	kids []*node // nodes that count here
}

// link is the edge from a node to a node at which it counts.
type link struct {
	to  *node // nil: none
	pos int   // index in kids of to
}

// contribution is added by a node to the sums of the nodes at which it counts: held to their held, and load, which includes reservations,
// to their load.
type contribution struct{ held, load Bytes }

// Account has the sums of a device, or of a budget on a device, in bytes.
type Account struct {
	Limit     Bytes // capacity of the device less Overhead, or memory.max of the budget
	Granted   Bytes // granted bytes; 0 for budgets
	Held      Bytes // granted and charged bytes; for a device without managed memory that it does not hold now
	Committed Bytes // held or reserved bytes: at least Held
	Overhead  Bytes // bytes of Overhead held or reserved
	Streams   int   // number of streams; 0 for budgets
}

// Errors of the ledger. They are wrapped in an error that names the object.
var (
	ErrNoDevice = errors.New("no such device")
	ErrExists   = errors.New("exists already")
	ErrBusy     = errors.New("still in use")
	ErrCycle    = errors.New("a budget cannot be above itself")
)

// notifyFreed calls Freed.
func (l *Ledger) notifyFreed() {
	if l.Freed != nil {
		l.Freed()
	}
}

// device returns the device with an index, or nil.
func (l *Ledger) device(index int) *device {
	for _, d := range l.devices {
		if d.index == index {
			return d
		}
	}
	return nil
}
