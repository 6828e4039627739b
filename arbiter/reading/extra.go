package reading

import (
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// Extra is what a lease takes of its device beyond its bytes. The oldest lease that a process has
// there takes it for all of them.
type Extra struct {
	Overhead accounting.Bytes // confirmed by two readings
	Excess   accounting.Bytes // of that, what no call named

	last          accounting.Bytes // Overhead by the last reading alone
	suspected     accounting.Bytes // Excess by the last reading alone
	expected      accounting.Bytes // overhead expected of contexts that no reading shows yet
	expectedAt    time.Time        // when some were made last
	confirmations int              // readings since then, up to proven
	making        bool             // some of these were being made when the last reading began
	freed         accounting.Bytes // of Overhead: contexts had it that are gone
	freedAt       time.Time
	managed       accounting.Bytes // managed memory that was granted since the last reading began
	before        accounting.Bytes // used when the reading began that is not compared yet
	recent        accounting.Bytes // most used at once since the last reading began, as far as it was looked at
	steady        accounting.Bytes // used at the last reading
	trusted       accounting.Bytes // what was no excess when its word was last believed
}

// confirmationsNeeded is how many readings end a promise: no context is in the making any more.
const confirmationsNeeded = 2

// Cost is what the lease takes, shown or to be expected.
func (b *Extra) Cost() accounting.Bytes { return max(b.Overhead, b.expected) }

// Confirmed reports that readings have shown all its contexts.
func (b *Extra) Confirmed() bool { return b.confirmations >= confirmationsNeeded }

// FreedContexts is what contexts had that are gone, and the next ones come to have.
func (b *Extra) FreedContexts() accounting.Bytes { return b.freed }

// Made notes that contexts were made, or are about to be, that no reading shows yet.
func (b *Extra) Made(now time.Time) { b.confirmations, b.expectedAt = 0, now }

// Expect expects the cost of contexts that are about to be made, beyond what the device shows
// already.
func (b *Extra) Expect(cost accounting.Bytes) {
	b.expected = max(b.expected, b.Overhead).Plus(cost)
}

// ReuseFreed takes what new contexts cost off what was vacated.
func (b *Extra) ReuseFreed(cost accounting.Bytes) { b.freed = b.freed.Less(cost) }

// FreeContexts notes that n of so many contexts are gone. What the device showed of them stays overhead until
// the next reading; but the lease's own next contexts go where they were. Nobody else is granted it on
// the client's word.
func (b *Extra) FreeContexts(now time.Time, n, of int) {
	if of == 0 {
		return
	}
	if n > 0 {
		each := b.Overhead.Less(b.Excess).Less(b.freed) / accounting.Bytes(of)
		b.freed, b.freedAt = b.freed.Plus(each.Times(uint64(n))), now
	}
	b.expected = b.expected / accounting.Bytes(of) * accounting.Bytes(of-n)
}

// BeginReading notes that a reading is about to begin, what the lease uses then, and whether contexts of it are
// being made.
func (b *Extra) BeginReading(used accounting.Bytes, making bool) {
	b.before, b.recent, b.making, b.managed = used, used, making, 0
}

// GrantManaged notes that n bytes of managed memory were granted.
func (b *Extra) GrantManaged(n accounting.Bytes) { b.managed = b.managed.Plus(n) }

// Used notes that the lease was seen to use so much.
func (b *Extra) Used(used accounting.Bytes) { b.recent = max(b.recent, used) }

// Explain takes bytes that a client has just accounted for off what the last readings could not explain. The
// next reading would show it too, but a program may free them before that, and ask again.
func (b *Extra) Explain(n accounting.Bytes) {
	n = min(n, b.suspected)
	b.suspected, b.last = b.suspected.Less(n), b.last.Less(n)
	b.Excess, b.Overhead = min(b.Excess, b.suspected), min(b.Overhead, b.last)
}

// Distrust notes that what the client says of itself is not believed from here on.
func (b *Extra) Distrust() { b.trusted = b.Overhead.Less(b.Excess) }

// Clear forgets what readings have shown: another lease of the process has it, or the device is gone.
func (b *Extra) Clear() { b.Overhead, b.last, b.Excess, b.suspected = 0, 0, 0, 0 }
