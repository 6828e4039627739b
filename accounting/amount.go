package accounting

// This file has the table of amounts that leases hold. node.go sums the amounts, and reserve.go checks them against limits.

// Amount is a quantity that leases hold: a row of the table below. Every node of the tree has the sum of each amount, and may limit it.
type Amount int

// Amounts, in the order in which they are checked.
const (
	Streams  Amount = iota
	Memory          // bytes of memory that count against budgets; a reservation (memory.min) is of Memory and of Present
	Present         // part of Memory that counts against the device: not managed memory that the device does not hold now
	Overhead        // bytes of the device used in addition to Present, by contexts and the like; a budget may reserve some
	nAmounts
)

// rows is the table of amounts. A new amount needs a row here, and these changes:
//
//   - node.limits says which nodes limit it.
//   - node.reserve says how much of it a node reserves. Without a case there, it is reserved like memory.
//   - In package arbiter, Request.takes, ticket.takes and Arbiter.apply add it to what a request takes, and copy.go copies it.
//   - If it is not awaited, Arbiter.neverFits refuses requests without room for it, with ReasonStreams.
var rows = [nAmounts]struct {
	most    Bytes // most that one lease can hold, whatever its client reports
	awaited bool  // a request may wait for the amount
}{
	Streams:  {most: 1 << 30},
	Memory:   {most: mostBytes, awaited: true},
	Present:  {most: mostBytes, awaited: true},
	Overhead: {most: mostBytes, awaited: true},
}

// mostBytes is the most bytes that one lease can hold and one budget can reserve: more than any device has. It keeps the sums of 2^15
// leases and budgets below 2^64, whatever clients and files say.
const mostBytes Bytes = 1 << 48

// Awaited reports whether a request may wait for an amount. A request for another amount without room is refused at once.
func (k Amount) Awaited() bool { return rows[k].awaited }

// Amounts has a value for each amount. All values are of type Bytes, also numbers of streams.
type Amounts [nAmounts]Bytes

// OnDevice returns the amounts of n bytes of memory that the device must hold.
func OnDevice(n Bytes) Amounts { return Amounts{Memory: n, Present: n} }

// Managed returns the amounts of n bytes of managed memory. They count against the device only if a reading shows them there.
func Managed(n Bytes) Amounts { return Amounts{Memory: n} }
