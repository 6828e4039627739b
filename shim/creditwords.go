package shim

// This file reads and changes the credit words of lease pages. The arbiter calls it through
// arbiter.CreditWord. Package statefile has the records, and package ipc the layout of a page.

import (
	"sync/atomic"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/reading"
	"github.com/gpuarb/gpuarb/internal/faults"
	"github.com/gpuarb/gpuarb/internal/statefile"
	"github.com/gpuarb/gpuarb/ipc"
)

// Words holds the settings of the credit words of all leases. The daemon's lock guards it. Clients change
// their words at any time, so each change is a compare-and-swap, which is repeated up to maxSwaps times.
type Words struct {
	onClamp  func(arbiter.LeaseID)
	maxSwaps int // number of failed swaps after which a change is made in another way
}

// Lease is the lease of a session on a device: the arbiter's lease, its slot in the client's page,
// and its record in the state file. It implements arbiter.CreditWord.
type Lease struct {
	ID     arbiter.LeaseID
	Device int              // index of the device now
	Record *statefile.Lease // has the slot of the page; nil: the lease has ended
	Index  int              // index of Record

	words     *Words
	page      *ipc.LeasePage   // nil: the page is not known, or gone
	slot      uint32           // copy of Record's slot, because a hanging reader can outlive the mapping of Record
	peak      accounting.Bytes // most bytes used at once
	published bool             // whether the page shows the values in shown
	shown     Shown
}

// Shown are the facts about the device's memory that the page shows to the client, so that the
// client need not ask. All in bytes.
type Shown struct {
	Beyond  accounting.Bytes // free bytes in addition to the credit
	Used    accounting.Bytes // used bytes of Total, the credit included
	Total   accounting.Bytes // total bytes of the budget
	Limited bool             // Total is below what the device can grant
}

// NewWords returns the Words of a new daemon. onClamp is called with each lease whose word claimed
// more credit than was granted; any method may call it.
func NewWords(onClamp func(arbiter.LeaseID)) *Words { return &Words{onClamp: onClamp, maxSwaps: 256} }

// Lease returns the lease of a record, on the device with this index, in its client's page; see
// SetPage.
func (w *Words) Lease(record *statefile.Lease, index, device int, page *ipc.LeasePage) *Lease {
	return &Lease{Device: device, Record: record, Index: index, words: w, page: page, slot: record.Slot, peak: accounting.Bytes(record.Peak)}
}

// Opened sets the arbiter's ID of the lease.
func (l *Lease) Opened(id arbiter.LeaseID) { l.ID = id }

// End ends a lease. Code that still has the Lease finds no record in it.
func (l *Lease) End() { l.Record, l.page = nil, nil }

// SetPage sets the page of the client. Call it with nil if the page is not known, is about to be
// unmapped, or if the client is gone. From then on the word reads as no credit.
func (l *Lease) SetPage(page *ipc.LeasePage) { l.page = page }

// Epoch returns the epoch of the credit word in the page.
func (l *Lease) Epoch() (epoch uint16) {
	l.guarded(func() { epoch = ipc.CreditWord(l.word().Load()).Epoch() })
	return epoch
}

// guarded runs f on the slot of the lease. A fault in the page removes the page from the lease
// instead of ending the daemon. Such faults are possible: the owner can punch holes into the page,
// and there may be no memory to fill them.
func (l *Lease) guarded(f func()) {
	if l.page != nil && l.page.Guard(f) != nil {
		l.page = nil
	}
}

func (l *Lease) word() *atomic.Uint64 { return l.page.CreditWord(l.slot) }
func (l *Lease) low() *atomic.Uint64  { return l.page.Low(l.slot) }

// Credit returns the idle bytes in the word, clamped to [0, granted].
func (l *Lease) Credit(granted accounting.Bytes) (credit accounting.Bytes) {
	l.guarded(func() {
		if credit = accounting.Bytes(ipc.CreditWord(l.word().Load()).Credit()); credit > granted {
			credit = granted
			l.words.onClamp(l.ID)
		}
	})
	return credit
}

// Take takes up to most idle bytes out of the word, and returns how many it took.
func (l *Lease) Take(granted, most accounting.Bytes) (taken accounting.Bytes) {
	l.guarded(func() {
		l.change(statefile.ChangeTake, granted, func(credit, flags uint64) (uint64, uint64, accounting.Bytes) {
			taken = min(accounting.Bytes(credit), most)
			return credit - uint64(taken), flags, granted - taken
		})
	})
	return taken
}

// Give adds n idle bytes to the word. It returns false, without a change, if there is no page.
func (l *Lease) Give(granted, n accounting.Bytes) (given bool) {
	l.guarded(func() {
		if uint64(granted)+uint64(n) > ipc.CreditLimit {
			return
		}
		l.change(statefile.ChangeGive, granted, func(credit, flags uint64) (uint64, uint64, accounting.Bytes) {
			return credit + uint64(n), flags, granted + n
		})
		given = true
	})
	return given
}

// Free adds n idle bytes to the word, as the client does when it frees memory.
func (l *Lease) Free(n accounting.Bytes) (freed bool) {
	l.guarded(func() {
		l.page.GiveCredit(l.slot, uint64(n))
		freed = true
	})
	return freed
}

// Grant records that n bytes went to the thread that asked for them. The word keeps its credit and
// gets a new epoch, so that its low-water mark starts again. The sum is recorded first, although the
// change announces the same sum: without a page, or after a fault in the page, the change is not
// finished, and the client gets its reply all the same.
func (l *Lease) Grant(granted, n accounting.Bytes) {
	l.Record.Grant(uint64(granted + n))
	l.guarded(func() {
		// change records the low-water mark of the old epoch with the old sum.
		l.change(statefile.ChangeFlag, granted, func(credit, flags uint64) (uint64, uint64, accounting.Bytes) {
			return credit, flags, granted + n
		})
	})
	l.raisePeak(granted + n - l.Credit(granted+n))
}

// Flag sets both flags of the word.
func (l *Lease) Flag(closed, notify bool) {
	flags := uint64(0)
	if closed {
		flags |= ipc.FlagClosed
	}
	if notify {
		flags |= ipc.FlagNotify
	}
	l.guarded(func() {
		granted := accounting.Bytes(l.Record.Granted)
		l.change(statefile.ChangeFlag, granted, func(credit, _ uint64) (uint64, uint64, accounting.Bytes) {
			return credit, flags, granted
		})
	})
}

// Streams returns the number of streams in the client's stream word. lent is false if the client
// does not count its streams.
func (l *Lease) Streams() (n int, lent bool) {
	l.guarded(func() { n, lent = ipc.StreamCount(l.page.Streams(l.slot).Load()) })
	return n, lent
}

// CloseStreams takes the count of streams back from the client. It returns the final count;
// afterwards the client must ask for each stream. The count is written to the record before the
// word is closed, because a new daemon uses the word only while it is open.
func (l *Lease) CloseStreams() (n int, lent bool) {
	l.guarded(func() {
		word := l.page.Streams(l.slot)
		for range l.words.maxSwaps {
			seen := word.Load()
			if n, lent = ipc.StreamCount(seen); !lent {
				return
			}
			l.keepStreams(n)
			if word.CompareAndSwap(seen, 0) {
				return
			}
		}
		n, _ = ipc.StreamCount(word.Swap(0) | ipc.StreamsOpen) // the client changes the word without a pause
		lent = true
		l.keepStreams(n)
	})
	return n, lent
}

func (l *Lease) keepStreams(n int) { atomic.StoreUint32(&l.Record.Streams, uint32(n)) }

// OpenStreams lends the count of streams to the client, which has n streams and may have most. The
// word must be closed.
func (l *Lease) OpenStreams(n, most int) (lent bool) {
	l.guarded(func() {
		n, most := uint64(min(n, ipc.StreamsMask)), uint64(min(most, ipc.StreamsMask))
		l.page.Streams(l.slot).Store(ipc.StreamsOpen | most<<ipc.StreamsMaxShift | n)
		lent = true
	})
	return lent
}

// SetAway writes to the state file how many bytes of the lease do not count against its device; at
// most what is granted.
func (l *Lease) SetAway(n accounting.Bytes) { atomic.StoreUint64(&l.Record.Away, uint64(n)) }

// Limit writes the client's memory.max in force to its page.
func (l *Lease) Limit(limit accounting.Bytes) {
	l.guarded(func() { l.page.Limit(l.slot).Store(uint64(limit)) })
	l.Hide()
}

// Peak returns the most bytes that were used at once since the lease was opened.
func (l *Lease) Peak(granted accounting.Bytes) accounting.Bytes {
	l.guarded(func() { l.recordLowWater(granted, ipc.CreditWord(l.word().Load())) })
	return l.peak
}

// Pending returns the client's own count of bytes that it frees in stream order.
func (l *Lease) Pending() (pending accounting.Bytes) {
	l.guarded(func() {
		pending = min(accounting.Bytes(l.page.Pending(l.slot).Load()), accounting.Bytes(l.Record.Granted))
	})
	return pending
}

// Called reports whether the client has made a call for the lease since the last Called.
func (l *Lease) Called() (called bool) {
	l.guarded(func() { called = l.page.Called(l.slot).Swap(0) != 0 })
	return called
}

// Recent returns the most bytes that were used at once since the last change of the word.
func (l *Lease) Recent(granted accounting.Bytes) (most accounting.Bytes) {
	l.guarded(func() { most = granted - l.leastCredit(granted, ipc.CreditWord(l.word().Load())) })
	return most
}

// Report returns what the client reports about its blocks.
func (l *Lease) Report() (published reading.ClientReport) {
	l.guarded(func() {
		counts := l.page.Counts(l.slot).Load()
		if counts&ipc.CountsTold == 0 {
			return
		}
		published = reading.ClientReport{
			Known: true, Soft: counts&ipc.CountsSoft != 0, Blocks: uint32(counts & ipc.CountsBlocksMax),
			Pools:    uint32(counts >> ipc.CountsPoolsShift & ipc.CountsPoolsMax),
			Imported: accounting.Bytes(l.page.Imported(l.slot).Load()),
			Managed:  accounting.Bytes(l.page.Managed(l.slot).Load()),
			Making:   int(counts >> ipc.CountsMakingShift & ipc.CountsMakingMax),
		}
	})
	return published
}

// Show publishes the state of the device's memory in the page. at is a time in milliseconds of
// CLOCK_MONOTONIC_COARSE.
func (l *Lease) Show(s Shown, at uint64) {
	l.guarded(func() {
		l.published, l.shown = true, s
		_, _, total, seen := l.page.Shown(l.slot)
		total.Store(uint64(s.Total))
		seen.Store(at)
		l.show(ipc.CreditWord(l.word().Load()).Epoch(), s)
	})
}

// Hide withdraws the published state, so that the client asks again.
func (l *Lease) Hide() {
	l.guarded(func() {
		l.published = false
		room, _, _, _ := l.page.Shown(l.slot)
		room.Store(0)
	})
}

// show writes the published state for an epoch. The client ignores it until the credit word has
// that epoch.
func (l *Lease) show(epoch uint16, s Shown) {
	if !l.published {
		return
	}
	flags := uint64(ipc.ShownTold)
	if s.Limited {
		flags |= ipc.ShownLimited
	}
	room, used, _, _ := l.page.Shown(l.slot)
	used.Store(uint64(s.Used))
	room.Store(uint64(ipc.MakeCreditWord(uint64(s.Beyond), epoch, flags)))
}

// granted returns the published state after the granted sum of the lease has changed from before to
// after. The difference moves from the free bytes to the used ones.
func (s Shown) granted(before, after accounting.Bytes) Shown {
	s.Beyond = s.Beyond.Plus(before).Less(after)
	s.Used = s.Used.Plus(after).Less(before)
	return s
}

// Lost records that the device of the lease is gone, so that the next daemon does not restore the
// lease as alive.
func (l *Lease) Lost() {
	l.Hide()
	l.Record.Device |= statefile.LeaseLost
	l.Record.Granted, l.Record.Streams, l.Record.Contexts = 0, 0, 0
}

// Resize records a change of granted that does not change the word: a lease was restored, closed,
// or charged for bytes that the device reports.
func (l *Lease) Resize(granted accounting.Bytes) {
	l.Hide()
	atomic.StoreUint64(&l.Record.Granted, uint64(granted))
}

// change changes the word by the rules of the state file, in this order: announce, swap, finish.
// next gets the clamped credit and the flags; it returns the new credit and flags, and the sum that
// is granted afterwards.
//
// The low-water mark of the new epoch is written before the swap. So a client that sees the new
// epoch in the word finds its mark, and a client that still sees the old epoch ignores the mark.
func (l *Lease) change(kind uint32, granted accounting.Bytes,
	next func(credit, flags uint64) (uint64, uint64, accounting.Bytes)) {
	for range l.words.maxSwaps {
		old := ipc.CreditWord(l.word().Load())
		swapped, shown := l.announce(kind, granted, old, next)
		if l.word().CompareAndSwap(uint64(old), uint64(swapped)) {
			stepSwapped(kind)
			l.shown = shown
			l.Record.Finish()
			return
		}
	}
	// The client changes the word without a pause. To end that, take out all credit at once, and
	// close the word. Afterwards, add the new credit to what the client has freed meanwhile. Only this
	// change is announced after its swap, because the credit is not known before. The announced epoch
	// is that of the empty word, so that the next daemon finishes the change as soon as it is
	// announced.
	//
	// If the daemon dies between the swap and the addition, the word lacks the old credit, and after
	// the announcement also the credit that the change gives. These bytes count as used until the
	// client resumes and reports what it uses: too much is counted, never too little. Bytes that a
	// change takes have left the word in the swap. The word stays closed until the next daemon writes
	// its flags.
	l.Record.Withdraw()
	epoch := ipc.CreditWord(l.word().Load()).Epoch()
	empty := ipc.MakeCreditWord(0, ipc.NextEpoch(epoch), ipc.FlagClosed)
	old := ipc.CreditWord(l.word().Swap(uint64(empty))).WithEpoch(epoch)
	swapped, shown := l.announce(kind, granted, old, next)
	// Clients change only the credit bits. The addition of this difference, modulo 2^64, adds the new
	// credit, clears FlagClosed unless the change sets it, and sets NOTIFY if the change does.
	l.word().Add(uint64(swapped) - uint64(empty))
	l.shown = shown
	l.Record.Finish()
}

// stepSwapped marks the place between the swap of a word and the end of its change, for package
// faults.
func stepSwapped(kind uint32) {
	switch kind {
	case statefile.ChangeTake:
		faults.At("take.swapped")
	case statefile.ChangeGive:
		faults.At("give.swapped")
	case statefile.ChangeFlag:
		faults.At("flag.swapped")
	}
}

// announce computes a change and writes it to the record. It returns the new word, and the state
// that is published from then on.
func (l *Lease) announce(kind uint32, granted accounting.Bytes, old ipc.CreditWord,
	next func(credit, flags uint64) (uint64, uint64, accounting.Bytes)) (ipc.CreditWord, Shown) {
	credit := min(old.Credit(), uint64(granted))
	if credit != old.Credit() {
		l.words.onClamp(l.ID)
	}
	l.recordLowWater(granted, old)
	newCredit, flags, after := next(credit, old.Flags())
	swapped := ipc.MakeCreditWord(newCredit, ipc.NextEpoch(old.Epoch()), flags)
	l.Record.Announce(kind, swapped.Epoch(), uint64(after))
	faults.At("mark.announced")
	l.low().Store(uint64(swapped.WithFlags(0)))
	faults.At("mark.stored")
	shown := l.shown.granted(granted, after)
	l.show(swapped.Epoch(), shown)
	return swapped, shown
}

// recordLowWater updates the peak from the low-water mark of this value of the word.
func (l *Lease) recordLowWater(granted accounting.Bytes, word ipc.CreditWord) {
	l.raisePeak(granted - l.leastCredit(granted, word))
}

// leastCredit returns the least credit since the last change of the word.
func (l *Lease) leastCredit(granted accounting.Bytes, word ipc.CreditWord) accounting.Bytes {
	credit := min(accounting.Bytes(word.Credit()), granted)
	if low := ipc.CreditWord(l.low().Load()); low.Epoch() == word.Epoch() {
		credit = min(credit, accounting.Bytes(low.Credit()))
	}
	return credit
}

func (l *Lease) raisePeak(used accounting.Bytes) {
	if used > l.peak {
		l.peak = used
		atomic.StoreUint64(&l.Record.Peak, uint64(used))
	}
}
