package reading

import (
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// Beyond is what a lease takes of its device beyond its bytes. The oldest lease that a process has
// there takes it for all of them.
type Beyond struct {
	Overhead accounting.Bytes // confirmed by two readings
	Excess   accounting.Bytes // of that, what no call named

	last       accounting.Bytes // Overhead by the last reading alone
	suspected  accounting.Bytes // Excess by the last reading alone
	promised   accounting.Bytes // overhead expected of contexts that no reading shows yet
	promisedAt time.Time        // when some were made last
	proofs     int              // readings since then, up to proven
	making     bool             // some of these were being made when the last reading began
	vacated    accounting.Bytes // of Overhead: contexts had it that are gone
	vacatedAt  time.Time
	apart      accounting.Bytes // managed memory that was granted since the last reading began
	before     accounting.Bytes // used when the reading began that is not compared yet
	recent     accounting.Bytes // most used at once since the last reading began, as far as it was looked at
	steady     accounting.Bytes // used at the last reading
	believed   accounting.Bytes // what was no excess when its word was last believed
}

// proven is how many readings end a promise: no context is in the making any more.
const proven = 2

// Cost is what the lease takes, shown or to be expected.
func (b *Beyond) Cost() accounting.Bytes { return max(b.Overhead, b.promised) }

// Proven reports that readings have shown all its contexts.
func (b *Beyond) Proven() bool { return b.proofs >= proven }

// Vacated is what contexts had that are gone, and the next ones come to have.
func (b *Beyond) Vacated() accounting.Bytes { return b.vacated }

// Made notes that contexts were made, or are about to be, that no reading shows yet.
func (b *Beyond) Made(now time.Time) { b.proofs, b.promisedAt = 0, now }

// Promise expects the cost of contexts that are about to be made, beyond what the device shows
// already.
func (b *Beyond) Promise(cost accounting.Bytes) {
	b.promised = max(b.promised, b.Overhead).Plus(cost)
}

// Refill takes what new contexts cost off what was vacated.
func (b *Beyond) Refill(cost accounting.Bytes) { b.vacated = b.vacated.Less(cost) }

// Vacate notes that n of so many contexts are gone. What the device showed of them stays overhead until
// the next reading; but the lease's own next contexts go where they were. Nobody else is granted it on
// the client's word.
func (b *Beyond) Vacate(now time.Time, n, of int) {
	if of == 0 {
		return
	}
	if n > 0 {
		each := b.Overhead.Less(b.Excess).Less(b.vacated) / accounting.Bytes(of)
		b.vacated, b.vacatedAt = b.vacated.Plus(each.Times(uint64(n))), now
	}
	b.promised = b.promised / accounting.Bytes(of) * accounting.Bytes(of-n)
}

// Begin notes that a reading is about to begin, what the lease uses then, and whether contexts of it are
// being made.
func (b *Beyond) Begin(used accounting.Bytes, making bool) {
	b.before, b.recent, b.making, b.apart = used, used, making, 0
}

// Apart notes that n bytes of managed memory were granted.
func (b *Beyond) Apart(n accounting.Bytes) { b.apart = b.apart.Plus(n) }

// Used notes that the lease was seen to use so much.
func (b *Beyond) Used(used accounting.Bytes) { b.recent = max(b.recent, used) }

// Named takes bytes that a client has just accounted for off what the last readings could not explain. The
// next reading would show it too, but a program may free them before that, and ask again.
func (b *Beyond) Named(n accounting.Bytes) {
	n = min(n, b.suspected)
	b.suspected, b.last = b.suspected.Less(n), b.last.Less(n)
	b.Excess, b.Overhead = min(b.Excess, b.suspected), min(b.Overhead, b.last)
}

// Distrust notes that what the client says of itself is not believed from here on.
func (b *Beyond) Distrust() { b.believed = b.Overhead.Less(b.Excess) }

// Clear forgets what readings have shown: another lease of the process has it, or the device is gone.
func (b *Beyond) Clear() { b.Overhead, b.last, b.Excess, b.suspected = 0, 0, 0, 0 }
