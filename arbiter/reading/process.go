package reading

import (
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

const (
	blockRounding accounting.Bytes = 2 << 20  // what a driver may add to a block
	poolRounding  accounting.Bytes = 32 << 20 // and to a pool

	maxContexts = 1 << 30 // more than any program makes
)

// ClientReport is a client's own word for what its blocks are, by which rounding and what belongs to others
// is told from memory that no call named. It can only lower what the client itself is charged.
type ClientReport struct {
	Known    bool             // false: the client's library says nothing of it
	Soft     bool             // some of the used bytes may not be on the device (managed memory, a heap)
	Blocks   uint32           // live ones
	Pools    uint32           // that it takes memory from
	Imported accounting.Bytes // of other processes' memory
	Managed  accounting.Bytes // of managed memory, which may be away from the device
	Making   int              // contexts that it asks for, or that its driver makes for it at this moment
}

func (t *ClientReport) add(other ClientReport) {
	t.Known, t.Soft = t.Known && other.Known, t.Soft || other.Soft
	t.Blocks += min(other.Blocks, ^uint32(0)-t.Blocks)
	t.Pools += min(other.Pools, ^uint32(0)-t.Pools)
	t.Imported = t.Imported.Plus(other.Imported)
}

// Member is what one living lease of a process comes to at the end of a reading.
type Member struct {
	*Extra
	Lease    uint64
	Used     accounting.Bytes // now
	Peak     accounting.Bytes // the most since then, as its word's mark has it
	Contexts int
	Streams  accounting.Bytes // what its streams are charged with
	Report   ClientReport
	Spoiled  bool // its word is not believed
}

// Process is what all leases of a process on a device come to in a reading. The zero value is one without any.
type Process struct {
	members  []Member         // the oldest first, which takes the overhead
	used     accounting.Bytes // dead leases' too
	least    accounting.Bytes // that the living leases used throughout the reading
	most     accounting.Bytes // that it may have used at any moment of the reading
	streams  accounting.Bytes
	contexts int
	report   ClientReport
	changed  bool // something has since the last reading
}

// AddEnded adds what a lease held that has ended: the same process before an exec, say.
func (p *Process) AddEnded(held accounting.Bytes) {
	p.used, p.most = p.used.Plus(held), p.most.Plus(held)
}

// Add adds a living lease.
func (p *Process) Add(m Member) {
	used := max(m.Used, m.before)
	p.least = p.least.Plus(min(m.Used.Less(m.managed), m.before))
	m.before = 0
	p.used, p.most = p.used.Plus(used), p.most.Plus(max(m.recent, used, m.Peak))
	p.changed = p.changed || m.Used != used || m.Used != m.steady || !m.Confirmed()
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

// Used is what the process uses of bytes, or used when the reading began.
func (p *Process) Used() accounting.Bytes { return p.used }

// Away returns how many bytes of each living lease the device does not hold, in the order in which the leases were added. It is the sum
// of two: of the bytes that the process used throughout the reading, those that the device's figure for the process does not
// contain, at most as many as the client says that it has of managed memory; and all managed memory granted since the reading began.
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

// Device is what a reading is compared with.
type Device struct {
	Costs *Costs
	Began time.Time        // of the reading
	Most  accounting.Bytes // that a context is believed to cost
}

// Read compares a device's figure for a process that has members with what it uses. listed says whether
// there was one. True: marks of its words explained some of it, and are to begin anew, so that they do so once.
func (p *Process) Read(d Device, uid uint32, figure accounting.Bytes, listed bool) (anew bool) {
	first := p.members[0].Extra
	var overhead accounting.Bytes
	if listed {
		overhead = figure.Less(p.used)
	}
	first.Overhead, first.last = min(overhead, first.last), overhead
	if d.Began.After(first.freedAt) { // a reading that shows what was vacated
		first.freed = 0
	}
	first.freed = min(first.freed, first.Overhead)
	anew = p.findExcess(figure, d.Costs.leastOf(uid, d.Most))
	p.confirm(d, uid)
	return anew
}

// findExcess finds what a process uses that no call named: what two readings agree on. What
// it may have used and freed while the device was read, or since its word's mark began,
// is no excess.
func (p *Process) findExcess(figure, context accounting.Bytes) (anew bool) {
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

// confirm compares what was promised for contexts with what the device shows: the second
// reading that began after they were made takes its place, whatever that shows, and tells
// what the next context will cost.
func (p *Process) confirm(d Device, uid uint32) {
	proves := false
	for _, m := range p.members {
		if d.Began.Before(m.expectedAt) || m.making || m.Confirmed() {
			continue
		}
		if m.confirmations++; m.Confirmed() {
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
	if !p.changed && p.report.Known && !p.report.Soft && !first.Spoiled {
		d.Costs.lower(uid, first.Overhead/accounting.Bytes(p.contexts))
	}
}
