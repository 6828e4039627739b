package accounting

import "errors"

// This file has the types of the ledger: the ledger, its devices, budgets and leases, and the nodes and links of the tree that they form. They
// know each other in a circle, so that they lie in one file. node.go has the sums of the tree; ledger.go, budget.go and lease.go open, close and read
// devices, budgets and leases; reserve.go checks and changes what leases hold.

// Ledger holds devices, a forest of budgets, and leases. Make one with NewLedger.
// Not safe for concurrent use. Budgets and leases belong to the ledger that opened
// them; using one after it was closed is the caller's mistake.
type Ledger struct {
	// Freed is called after a change that may make room: bytes went back, or a limit was raised. It may be nil.
	Freed func()

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

// Budget is a part of the tree of limits: on each device it has a node, with limits and sums of its own.
type Budget struct {
	Owner any // the caller's data, which the ledger does not read

	up    *Budget   // parent in the tree; nil: a root
	caps  []*Budget // caps, outside the tree, at which its sums count as well; the narrower ones first
	isCap bool
	nodes []*node // one for each device touched
	below int     // number of budgets and leases directly below
}

// Lease is what one client holds on one device, charged to a budget and to all above it. Its
// caller embeds it in what else it knows of the lease.
type Lease struct {
	node
	charged Bytes // of the memory that is held: not handed out
	away    Bytes // part of what was handed out: managed memory that the device does not hold now
	pos     int   // in dev.leases
}

// Holder is what embeds a Lease. The ledger hands it back wherever it yields leases.
type Holder interface{ lease() *Lease }

// node is a place in the tree where amounts are summed up and limited: a lease, a budget on a device, a cap on a device, or the device itself. Its
// sums count at its parent in the tree, up to the device, and at the caps that it is linked to. A cap counts at no other node.
type node struct {
	budget *Budget // nil: a lease, or a device
	holder Holder  // of a lease
	dev    *device

	max         Amounts // the most that may be held
	min         Bytes   // memory that is reserved, used or not
	minOverhead Bytes   // part of Beside that is reserved, used or not
	held        Amounts // what the leases at or below this node hold
	load        Amounts // sum of what the kids claim; of a lease, what it holds

	tree link    // to the budget above, or the device
	caps []link  // to the caps, the narrower ones first
	kids []*node // nodes that count here
}

// link is the edge from a node to a node at which it counts.
type link struct {
	to  *node // nil: none
	pos int   // index among the kids of to
}

// contribution is the amount that a node adds to the sums of the nodes at which it counts: held to their held, and load, which includes
// reservations, to their load.
type contribution struct{ held, load Bytes }

// Account is the sum of a device or of a budget on a device, in bytes.
type Account struct {
	Limit     Bytes // the device's capacity less Beside, or memory.max
	Granted   Bytes // handed out (devices only; 0 for budgets)
	Held      Bytes // handed out and charged; a device's without the managed memory that it does not hold now
	Committed Bytes // what is held or promised: never less than Held
	Overhead  Bytes // what the device lacks beside that, or will lack: held or reserved
	Streams   int   // devices only
}

// Errors of the ledger. They come wrapped in what was concerned.
var (
	ErrNoDevice = errors.New("no such device")
	ErrExists   = errors.New("exists already")
	ErrBusy     = errors.New("still in use")
	ErrCycle    = errors.New("a budget cannot be above itself")
)

// notifyFreed calls Eased.
func (l *Ledger) notifyFreed() {
	if l.Freed != nil {
		l.Freed()
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
