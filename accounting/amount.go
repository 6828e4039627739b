package accounting

// Amount is something of which leases hold so much: a row of the table below. Every node of
// the tree sums each up, and may bound it.
type Amount int

// The amounts, in the order in which they are judged.
const (
	Streams  Amount = iota
	Memory          // bytes of memory that count against budgets; a reservation (memory.min) is one of Memory and of Present
	Present         // the bytes of Memory that count against the device: all but managed memory that the device does not hold now
	Overhead        // bytes that the device lacks beside Present: contexts and other overhead; a budget may reserve some of them
	nAmounts
)

// rows is the table of amounts. A new one needs a row here, and what reserves and bounds it (node.reserve, node.bounds).
var rows = [nAmounts]struct {
	most    Bytes // the most that one lease can hold, whatever its client says
	awaited bool  // one may wait for it
}{
	Streams:  {most: 1 << 30},
	Memory:   {most: mostBytes, awaited: true},
	Present:  {most: mostBytes, awaited: true},
	Overhead: {most: mostBytes, awaited: true},
}

// mostBytes is the most bytes that one lease can hold, and that one budget can have reserved: more than any device has. It keeps the sums of
// 2^15 leases and budgets below 2^64, whatever clients and files say.
const mostBytes Bytes = 1 << 48

// Awaited reports whether one may wait for an amount; else what has no room is refused at once.
func (k Amount) Awaited() bool { return rows[k].awaited }

// Amounts is so much of each amount. All are counted in Bytes, streams too.
type Amounts [nAmounts]Bytes

// OnDevice returns the amounts of n bytes of memory that the device has to hold.
func OnDevice(n Bytes) Amounts { return Amounts{Memory: n, Present: n} }

// Managed returns the amounts of n bytes of managed memory: they count against the device only when its figures show them.
func Managed(n Bytes) Amounts { return Amounts{Memory: n} }
