package accounting

// Amount is something of which leases hold so much: a row of the table below. Every node of
// the tree sums each up, and may bound it.
type Amount int

// The amounts, in the order in which they are judged.
const (
	Streams Amount = iota
	Memory         // device memory, in bytes: the only one that can be reserved
	nAmounts
)

// rows is the table of amounts: what a new one needs is a row.
var rows = [nAmounts]struct {
	most    Bytes // the most that one lease can hold, whatever its client says
	awaited bool  // one may wait for it
}{
	Streams: {most: 1 << 30},
	Memory:  {most: Max, awaited: true},
}

// Awaited reports whether one may wait for an amount; else what has no room is refused at once.
func (k Amount) Awaited() bool { return rows[k].awaited }

// Amounts is so much of each amount. All are counted in Bytes, streams too.
type Amounts [nAmounts]Bytes
