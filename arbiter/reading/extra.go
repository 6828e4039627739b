package reading

import (
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// This file has what is kept between readings for each lease. process.go updates it at each reading. The arbiter calls both.

// Extra is the usage of a device by a lease in addition to its granted bytes. If a process has several leases on the device, the oldest one
// has the usage of all.
type Extra struct {
	Overhead accounting.Bytes // extra usage that two readings have shown, or a single early one
	Excess   accounting.Bytes // part of Overhead that no call asked for

	last          accounting.Bytes // Overhead by the last reading alone
	suspected     accounting.Bytes // Excess by the last reading alone
	expected      accounting.Bytes // Overhead as it is expected with contexts that no reading shows yet; 0: readings show all
	expectedAt    time.Time        // when such contexts were last made
	confirmations int              // readings since then, up to confirmationsNeeded
	making        bool             // such contexts were being made when the last reading began
	freed         accounting.Bytes // part of Overhead that ended contexts have freed
	freedAt       time.Time
	stale         accounting.Bytes // part of expected that is freed, and that no new context has reused
	managed       accounting.Bytes // managed memory granted since the last reading began
	before        accounting.Bytes // bytes used at the beginning of a reading that is not yet compared
	recent        accounting.Bytes // most bytes seen in use since the last reading began
	steady        accounting.Bytes // bytes used at the last reading
	changedAt     time.Time        // beginning of the last reading that found the bytes used changed
	trusted       accounting.Bytes // Overhead without Excess when the credit word became spoiled
}

// confirmationsNeeded is the number of readings, a second apart, after which expected is dropped: no context can still be in the making.
const confirmationsNeeded = 2

// Cost returns the extra usage: the larger of what readings show and what is expected.
func (b *Extra) Cost() accounting.Bytes { return max(b.Overhead, b.expected) }

// Assumed returns the part of Cost that no reading has shown: what is expected beyond Overhead.
func (b *Extra) Assumed() accounting.Bytes { return b.expected.Less(b.Overhead) }

// Shown returns a copy of b in which only what readings have shown counts.
func (b Extra) Shown() Extra {
	b.expected = 0
	return b
}

// MadeAt returns when contexts that readings have not confirmed were last made; the zero time: readings have confirmed all.
func (b *Extra) MadeAt() time.Time {
	if b.Confirmed() {
		return time.Time{}
	}
	return b.expectedAt
}

// Confirmed reports whether readings have shown all contexts.
func (b *Extra) Confirmed() bool { return b.confirmations >= confirmationsNeeded }

// FreedContexts returns the bytes of ended contexts that the next contexts reuse.
func (b *Extra) FreedContexts() accounting.Bytes { return b.freed }

// ContextsMade records that contexts were made, or are about to be, that no reading shows yet.
func (b *Extra) ContextsMade(now time.Time) { b.confirmations, b.expectedAt = 0, now }

// Expect adds the cost of contexts that are about to be made to what the device shows.
func (b *Extra) Expect(cost accounting.Bytes) {
	if b.stale = min(b.stale, b.freed); b.Overhead > b.expected {
		b.stale = b.freed
	}
	b.expected = max(b.expected, b.Overhead).Plus(cost)
}

// ReuseFreed subtracts the cost of new contexts from the freed bytes.
func (b *Extra) ReuseFreed(cost accounting.Bytes) { b.freed = b.freed.Less(cost) }

// FreeContexts records that n contexts of a total number have ended. Their bytes stay overhead until the next reading, because the
// client's message alone must not make room for other jobs. The lease's own next contexts can reuse them.
func (b *Extra) FreeContexts(now time.Time, n, total int) {
	if total == 0 {
		return
	}
	if n > 0 {
		each := b.Overhead.Less(b.Excess).Less(b.freed) / accounting.Bytes(total)
		b.freed, b.freedAt = b.freed.Plus(each.Times(uint64(n))), now
	}
	b.expected = b.expected / accounting.Bytes(total) * accounting.Bytes(total-n)
	b.stale = b.stale / accounting.Bytes(total) * accounting.Bytes(total-n)
}

// BeginReading records at the beginning of a reading what the lease uses, and whether contexts of it are being made.
func (b *Extra) BeginReading(used accounting.Bytes, making bool) {
	b.before, b.recent, b.making, b.managed = used, used, making, 0
}

// GrantManaged records that n bytes of managed memory were granted.
func (b *Extra) GrantManaged(n accounting.Bytes) { b.managed = b.managed.Plus(n) }

// Used records that the lease was seen to use this many bytes.
func (b *Extra) Used(used accounting.Bytes) { b.recent = max(b.recent, used) }

// Explain subtracts bytes that a client has just reported from what the last readings could not explain. The next reading would show that
// too, but a program may free the bytes before it, and ask again.
func (b *Extra) Explain(n accounting.Bytes) {
	n = min(n, b.suspected)
	b.suspected, b.last = b.suspected.Less(n), b.last.Less(n)
	b.Excess, b.Overhead = min(b.Excess, b.suspected), min(b.Overhead, b.last)
}

// Distrust records that reports of the client are not used from now on.
func (b *Extra) Distrust() { b.trusted = b.Overhead.Less(b.Excess) }

// Clear forgets what readings have shown: another lease of the process takes it over, or the device is gone.
func (b *Extra) Clear() { b.Overhead, b.last, b.Excess, b.suspected = 0, 0, 0, 0 }
