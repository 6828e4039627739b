package arbiter

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// What a process uses beyond its bytes has two parts. Its contexts, the rounding of
// its blocks, and what it imported are overhead, which lowers the capacity. The rest
// is memory that no call names: modules and their variables, the device heap, local
// memory. That is the process's own doing: it is excess, and charged to its budget.

// contextCosts is what contexts were seen to cost on a device.
type contextCosts struct {
	// least is the least that one cost of each user's programs. A client can make its
	// own figure too small (it takes credit and allocates nothing), so that one user's
	// never counts against another.
	least  map[uint32]accounting.Bytes
	latest [3]contextCost // of the last programs, the newest first
}

// contextCost is what each context of a lease costs.
type contextCost struct {
	lease LeaseID
	bytes accounting.Bytes
}

// The most users of whom the least is remembered; no excess below a sixteenth of the
// device for each context is seen of others.
const maxLeast = 4096

const (
	proven = 2 // readings after which a promise ends, and no context is in the making any more

	blockRounding accounting.Bytes = 2 << 20  // what a driver may add to a block
	poolRounding  accounting.Bytes = 32 << 20 // and to a pool
)

// mostContext bounds what a context is believed to cost.
func (d *device) mostContext() accounting.Bytes { return d.Total / 16 }

// contextCost is what the next context is expected to cost: the most that one of the
// last three programs cost, else the configured guess.
func (d *device) contextCost(p *rules.Policy) accounting.Bytes {
	var seen accounting.Bytes
	for _, c := range d.contexts.latest {
		seen = max(seen, c.bytes)
	}
	if seen > 0 {
		return min(seen, d.mostContext())
	}
	guess := p.ContextReserve
	if d.rule.ContextReserve != nil {
		guess = *d.rule.ContextReserve
	}
	return min(guess.Of(d.Total), d.mostContext())
}

// remember notes what the contexts of a program cost.
func (c *contextCosts) remember(l *lease, cost accounting.Bytes) {
	at := slices.IndexFunc(c.latest[:], func(x contextCost) bool { return x.lease == l.id })
	if at < 0 {
		at = len(c.latest) - 1
	}
	copy(c.latest[1:at+1], c.latest[:at])
	c.latest[0] = contextCost{l.id, cost}
}

// lower notes the least that a context of a user's program cost.
func (c *contextCosts) lower(uid uint32, cost accounting.Bytes) {
	was, known := c.least[uid]
	if known && was <= cost || !known && len(c.least) >= maxLeast {
		return
	}
	if c.least == nil {
		c.least = make(map[uint32]accounting.Bytes)
	}
	c.least[uid] = cost
}

// leastContext is what each context of a user's program costs at least.
func (d *device) leastContext(uid uint32) accounting.Bytes {
	if least, known := d.contexts.least[uid]; known {
		return min(least, d.mostContext())
	}
	return d.mostContext()
}

// promise reserves the cost of contexts that are about to be made, beyond the overhead
// that the device shows already.
func (a *Arbiter) promise(now time.Time, l *lease, cost accounting.Bytes) {
	l.proofs, l.promisedAt = 0, now
	a.recost(now, l, func() { l.promised = max(l.promised, l.overhead).Plus(cost) })
}

// makesContexts reports whether the driver of a lease's process may be making contexts that were
// granted: of those that it asks for or makes, some do not wait. Making one takes a driver as long as
// it likes, and readings go on meanwhile, which cannot show it yet.
func (a *Arbiter) makesContexts(l *lease) bool {
	if l.proofs >= proven || !l.session.alive() {
		return false
	}
	n := a.words.Told(l.id).Making
	for _, t := range l.session.job.tickets {
		if t.lease == l && t.kind == WantsContexts {
			n -= t.count
		}
	}
	return n > 0
}

// vacate notes that contexts of a lease are gone, before it is counted. What the device
// showed of them stays overhead until the next reading; but the lease's own next contexts
// go where they were. Nobody else is granted it on the client's word.
func (l *lease) vacate(now time.Time, n int) {
	if n == 0 {
		return
	}
	was := l.overhead.Less(l.excess).Less(l.vacated) / accounting.Bytes(l.contexts)
	l.vacated, l.vacatedAt = l.vacated.Plus(was.Times(uint64(n))), now
}

// refill forgets what was vacated, once a reading shows it: one that began after that.
func (l *lease) refill(began time.Time) {
	if began.After(l.vacatedAt) {
		l.vacated = 0
	}
	l.vacated = min(l.vacated, l.overhead)
}

// recost changes what a lease costs beyond its bytes, and has its budget and the
// device's capacity show it.
func (a *Arbiter) recost(now time.Time, l *lease, change func()) {
	d, before := l.device, l.free()
	change()
	a.stir(l.session.job)
	a.charge(now, l)
	if after := l.free(); after != before {
		l.recharge(before, after)
		a.recap(now, d)
	}
}

// holding is what the living leases of one process on a device come to.
type holding struct {
	leases   []*lease
	first    *lease           // the oldest, which takes the overhead; nil: none lives
	used     accounting.Bytes // the dead ones' too
	most     accounting.Bytes // that it may have used at any moment of the reading
	contexts int
	told     Told
	steady   bool // nothing moved since the last reading
}

// addUp adds up a process's leases. before is what each used when the reading began.
func (a *Arbiter) addUp(leases []*lease, before map[LeaseID]accounting.Bytes) holding {
	h := holding{told: Told{Known: true}, steady: true}
	for _, l := range leases {
		if !l.session.alive() { // the same process before an exec, say
			h.used, h.most = h.used.Plus(l.sum.Granted()), h.most.Plus(l.sum.Granted())
			continue
		}
		if l.lost {
			continue
		}
		now := a.look(l)
		used := max(now, before[l.id])
		recent := max(l.recent, used)
		if !l.spoiled {
			recent = max(recent, min(a.words.Recent(l.id, l.sum.Granted()), l.sum.Granted()))
		}
		h.used, h.most = h.used.Plus(used), h.most.Plus(recent)
		h.steady = h.steady && now == used && now == l.steady && l.proofs >= proven
		l.steady = now
		h.contexts = min(h.contexts+l.contexts, maxObjects)
		h.told.add(a.words.Told(l.id))
		h.leases = append(h.leases, l)
		if h.first == nil {
			h.first = l
		} else {
			l.overhead, l.reading, l.suspected, l.excess = 0, 0, 0, 0
		}
	}
	return h
}

func (t *Told) add(other Told) {
	t.Known, t.Soft = t.Known && other.Known, t.Soft || other.Soft
	t.Blocks += min(other.Blocks, ^uint32(0)-t.Blocks)
	t.Pools += min(other.Pools, ^uint32(0)-t.Pools)
	t.Imported = t.Imported.Plus(other.Imported)
}

// explained is how much of a process's overhead is no excess.
func (a *Arbiter) explained(h *holding) accounting.Bytes {
	l := h.first
	sum := l.device.leastContext(l.session.process.UID).Times(uint64(h.contexts)).Plus(h.told.Imported).
		Plus(blockRounding.Times(uint64(h.told.Blocks))).Plus(poolRounding.Times(uint64(h.told.Pools)))
	for _, l := range h.leases {
		sum = sum.Plus(l.streamCharge())
	}
	return sum
}

// streamCharge is what the streams of a lease are charged with.
func (l *lease) streamCharge() accounting.Bytes {
	return l.session.streamReserve().Times(uint64(l.sum.Streams()))
}

// exceed finds what a process uses that no call named: what two readings agree on. What
// it may have used and freed while the device was read, or since its word's mark began,
// is no excess; a mark that explains something is begun anew, so that it does so once.
func (a *Arbiter) exceed(h *holding, figure accounting.Bytes) {
	l := h.first
	switch {
	case l.spoiled:
		l.excess, l.suspected = l.overhead.Less(l.known), 0
	case !h.told.Known:
		l.excess, l.suspected = 0, 0
	default:
		explained := a.explained(h)
		suspected, surely := figure.Less(h.used).Less(explained), figure.Less(h.most).Less(explained)
		l.excess = min(surely, l.suspected)
		l.suspected = suspected
		if surely < suspected {
			for _, l := range h.leases {
				if !l.stale && !l.spoiled {
					a.flag(l)
				}
			}
		}
	}
}

// excessOf is the excess of a lease's process, whichever of its leases is charged with it.
func (a *Arbiter) excessOf(l *lease) (sum accounting.Bytes) {
	for _, l := range l.device.byPID[l.session.process.PID] {
		sum = sum.Plus(l.excess)
	}
	return sum
}

// named takes bytes that a client has just accounted for off what the last readings could
// not explain, and touches no word. The next reading would show it too, but a program may
// free them before that, and ask again.
func (a *Arbiter) named(l *lease, n accounting.Bytes) {
	d := l.device
	for _, l := range d.byPID[l.session.process.PID] {
		before, n := l.free(), min(n, l.suspected)
		l.suspected, l.reading = l.suspected.Less(n), l.reading.Less(n)
		l.excess, l.overhead = min(l.excess, l.suspected), min(l.overhead, l.reading)
		a.ledger.Charge(l.sum, a.charged(l))
		l.recharge(before, l.free())
		a.stir(l.session.job)
	}
	a.setCapacity(d)
}

// prove compares what was promised for contexts with what the device shows: the second
// reading that began after they were made takes its place, whatever that shows, and tells
// what the next context will cost.
func (h *holding) prove() {
	l, proves := h.first, false
	d := l.device
	for _, l := range h.leases {
		if d.began.Before(l.promisedAt) || l.making || l.proofs >= proven {
			continue
		}
		if l.proofs++; l.proofs == proven {
			l.promised, proves = 0, true
		}
	}
	if h.contexts == 0 || l.overhead == 0 {
		return
	}
	if proves {
		d.contexts.remember(l, l.overhead.Less(l.excess)/accounting.Bytes(h.contexts))
	}
	if h.steady && h.told.Known && !h.told.Soft && !l.spoiled {
		d.contexts.lower(l.session.process.UID, l.overhead/accounting.Bytes(h.contexts))
	}
}

// charged is what a process uses beyond its bytes and nobody else should pay for: its
// excess, the pools of its streams, and all overhead where the configuration says so.
func (a *Arbiter) charged(l *lease) accounting.Bytes {
	streams := l.streamCharge()
	if a.policy.ChargeOverhead {
		return max(l.cost(), streams)
	}
	return l.excess.Plus(streams)
}

// charge puts that against the lease's own budget.
func (a *Arbiter) charge(now time.Time, l *lease) {
	if l.excess > 0 && !l.announced {
		l.announced = true
		a.leaseEvent(now, l, EventExcess, l.excess, fmt.Sprintf(wording.Excess, l.session.name(), l.excess.Human(), l.device.Index))
	}
	n := a.charged(l)
	if n == l.sum.Charged() {
		return
	}
	a.ledger.Charge(l.sum, n)
	a.noteChain(l)
	for b := range l.sum.Budget().Chain() {
		a.enforce(now, b, l.device.Index)
	}
}
