package reading

import (
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// This file compares one reading of a device with what the leases of a process use. observe.go of package arbiter calls it. extra.go and
// costs.go have the results.

const (
	blockRounding accounting.Bytes = 2 << 20  // most that a driver adds to a block
	poolRounding  accounting.Bytes = 32 << 20 // most that a driver adds to a pool

	maxContexts = 1 << 30 // more than any program makes
)

// ClientReport describes the memory of a client by its own report. It separates rounding and memory of other processes from memory that no
// call asked for. It can only lower what the client itself is charged.
type ClientReport struct {
	Known    bool             // false: the client's library reports nothing
	Soft     bool             // some of the used bytes may not be on the device (managed memory, a heap)
	Blocks   uint32           // number of live blocks
	Pools    uint32           // number of pools that memory comes from
	Imported accounting.Bytes // imported memory of other processes
	Managed  accounting.Bytes // managed memory, which may be away from the device
	Making   int              // contexts that the client asks for, or that its driver is making
}

// add adds the report of another lease of the same process.
func (t *ClientReport) add(other ClientReport) {
	t.Known, t.Soft = t.Known && other.Known, t.Soft || other.Soft
	t.Blocks += min(other.Blocks, ^uint32(0)-t.Blocks)
	t.Pools += min(other.Pools, ^uint32(0)-t.Pools)
	t.Imported = t.Imported.Plus(other.Imported)
}

// Member is one living lease of a process at the end of a reading.
type Member struct {
	*Extra
	Lease    uint64
	Used     accounting.Bytes // bytes used now
	Peak     accounting.Bytes // most bytes used since the reading began, by the low-water mark of the credit word
	Contexts int
	Streams  accounting.Bytes // bytes that its streams are charged with
	Report   ClientReport
	Spoiled  bool // the credit word is spoiled, and not used

	moved bool // its usage has changed since the last reading, or during this one
}

// Process is all leases of a process on a device in one reading. The zero value has none.
type Process struct {
	members  []Member         // the oldest lease first; it has the extra usage
	used     accounting.Bytes // bytes used, including those of ended leases
	least    accounting.Bytes // bytes that the living leases used throughout the reading
	most     accounting.Bytes // most bytes that the process may have used during the reading
	streams  accounting.Bytes
	contexts int
	report   ClientReport
	changed  bool // usage has changed since the last reading, or contexts are not confirmed
}

// AddEnded adds the bytes of an ended lease, for example of the same process before an exec.
func (p *Process) AddEnded(held accounting.Bytes) {
	p.used, p.most = p.used.Plus(held), p.most.Plus(held)
}

// Add adds a living lease.
func (p *Process) Add(m Member) {
	used := max(m.Used, m.before)
	p.least = p.least.Plus(min(m.Used.Less(m.managed), m.before))
	m.before = 0
	p.used, p.most = p.used.Plus(used), p.most.Plus(max(m.recent, used, m.Peak))
	m.moved = m.Used != used || m.Used != m.steady
	p.changed = p.changed || m.moved || !m.Confirmed()
	m.steady = m.Used
	p.contexts = min(p.contexts+m.Contexts, maxContexts)
	p.streams = p.streams.Plus(m.Streams)
	if len(p.members) == 0 {
		p.report = ClientReport{Known: true}
	} else {
		m.Clear()
	}
	p.report.add(m.Report)
	p.members = append(p.members, m)
}

// Used returns the bytes that the process uses, or used when the reading began if that is more.
func (p *Process) Used() accounting.Bytes { return p.used }

// Away returns how many bytes of each living lease the device does not hold, in the order in which the leases were added. figure is the
// usage of the process by the reading. The result is a sum of two parts. The first is how much more the leases used throughout the reading
// than figure shows, up to the managed memory that the client reports. The second is all managed memory granted since the reading began.
func (p *Process) Away(figure accounting.Bytes) []accounting.Bytes {
	away, left := make([]accounting.Bytes, len(p.members)), p.least.Less(figure)
	for i, m := range p.members {
		if m.Spoiled {
			continue
		}
		old := min(left, m.Report.Managed, m.Used.Less(m.managed))
		left = left.Less(old)
		away[i] = old.Plus(min(m.managed, m.Used))
	}
	return away
}

// Device is the reading that processes are compared with.
type Device struct {
	Costs      *Costs
	Began      time.Time        // when the reading began
	MaxContext accounting.Bytes // largest cost of a context that is accepted
	Early      bool             // the reading began less than a second after the last one
}

// settledFor is how long the usage of a process must have been unchanged before an early reading of it counts. Bytes count as used from the
// moment in which they are granted, but the device shows them only when the driver has allocated them. In between, the overhead seems
// smaller than it is. On a busy machine that takes a program 100 ms and more.
const settledFor = 250 * time.Millisecond

// settled reports whether a reading shows at least the overhead that the process really has. While its driver makes a context, no reading
// does. Otherwise there are two cases. Either no allocation was under way: the process uses nothing, or its usage has not changed for
// settledFor. Or the reading shows all that was expected.
func (p *Process) settled(d Device, figure accounting.Bytes) bool {
	unchanged, making, expected := true, false, accounting.Bytes(0)
	for _, m := range p.members {
		if m.moved || m.changedAt.IsZero() {
			m.changedAt = d.Began
		}
		unchanged = unchanged && d.Began.Sub(m.changedAt) >= settledFor
		expected = expected.Plus(m.expected)
		making = making || m.making
	}
	shown := p.most == p.used && (unchanged || p.used == 0) || expected > 0 && figure.Less(p.most) >= expected
	return shown && !making
}

// confirmed reports whether readings have shown all contexts of the process.
func (p *Process) confirmed() bool {
	return !slices.ContainsFunc(p.members, func(m Member) bool { return !m.Confirmed() })
}

// Read compares the reading of a process with what its members use. listed is false if the reading does not list the process. It returns
// true if a low-water mark of a credit word explained some usage; the caller must reset the marks, so that they explain it only once.
//
// Ordinary readings are a second apart. An early reading may follow the last one at once. It counts alone, but only if it is settled, and
// it says nothing of excess.
func (p *Process) Read(d Device, uid uint32, figure accounting.Bytes, listed bool) (resetMark bool) {
	first := p.members[0].Extra
	settled := p.settled(d, figure)
	if d.Early && !settled {
		return p.most > p.used
	}
	var overhead accounting.Bytes
	if listed {
		overhead = figure.Less(p.used)
	}
	first.Overhead, first.last = min(overhead, first.last), overhead
	if d.Early {
		first.Overhead = overhead
	}
	if d.Began.After(first.freedAt) { // Overhead no longer contains these bytes, because the contexts ended before the reading began
		first.expected, first.stale, first.freed = first.expected.Less(first.stale), 0, 0
	}
	first.freed = min(first.freed, first.Overhead)
	if first.Excess = min(first.Excess, first.Overhead); !d.Early {
		resetMark = p.findExcess(figure, d.Costs.leastOf(uid, d.MaxContext))
	}
	p.confirm(d, uid, settled)
	return resetMark
}

// findExcess finds the usage that no call asked for and that two readings agree on. It excludes what the process may have used and freed
// during the reading, or since the low-water mark of its credit word was reset. It returns true if that exclusion made the result smaller: the
// caller must then reset the mark.
func (p *Process) findExcess(figure, context accounting.Bytes) (resetMark bool) {
	first := p.members[0]
	switch {
	case first.Spoiled:
		first.Excess, first.suspected = first.Overhead.Less(first.trusted), 0
	case !p.report.Known:
		first.Excess, first.suspected = 0, 0
	default:
		explained := context.Times(uint64(p.contexts)).Plus(p.report.Imported).Plus(p.streams).
			Plus(blockRounding.Times(uint64(p.report.Blocks))).Plus(poolRounding.Times(uint64(p.report.Pools)))
		suspected, surely := figure.Less(p.used).Less(explained), figure.Less(p.most).Less(explained)
		first.Excess, first.suspected = min(surely, first.suspected), suspected
		return surely < suspected
	}
	return false
}

// confirm compares the expected cost of contexts with what the device shows. The second reading that began after the contexts were made
// replaces the expected cost, whatever it shows, and gives the cost of the next context. A settled early reading does so alone. Within a
// second after the contexts were made, only settled readings count.
//
// A reading of unchanged usage also gives the smallest cost of a context. An early reading gives it when it confirms the contexts: if the
// process uses memory afterwards that no call asks for, later readings do not show the cost of its contexts alone.
func (p *Process) confirm(d Device, uid uint32, settled bool) {
	proves := false
	for _, m := range p.members {
		since := d.Began.Sub(m.expectedAt)
		if since < 0 || !settled && since < time.Second || m.making || m.Confirmed() {
			continue
		}
		if m.confirmations++; d.Early {
			m.confirmations = confirmationsNeeded
		}
		if m.Confirmed() {
			m.expected, proves = 0, true
		}
	}
	first := p.members[0]
	if p.contexts == 0 || first.Overhead == 0 {
		return
	}
	if proves {
		d.Costs.remember(first.Lease, first.Overhead.Less(first.Excess)/accounting.Bytes(p.contexts))
	}
	steady := !p.changed
	if d.Early {
		steady = proves && p.confirmed()
	}
	if steady && p.report.Known && !p.report.Soft && !first.Spoiled {
		d.Costs.lower(uid, first.Overhead/accounting.Bytes(p.contexts))
	}
}
