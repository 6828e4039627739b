package shim

import (
	"sync/atomic"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/reading"
	"github.com/gpuarb/gpuarb/faults"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/statefile"
)

// Words is what the words of all leases have in common. It is not safe for concurrent use among daemons'
// goroutines (the daemon's lock owns it); against the clients each change of a word is a compare-and-swap.
type Words struct {
	onClamp  func(arbiter.LeaseID)
	patience int // how often a swap may fail before the change is made in another way
}

// Lease is what a session holds on a device: the arbiter's lease ID, shown in the client's page
// and written down in the state file. It implements arbiter.Word.
type Lease struct {
	ID     arbiter.LeaseID
	Device int              // its index now
	Record *statefile.Lease // which says the slot of the page; nil: the lease is over
	Index  int              // of Record

	words *Words
	page  *ipc.LeasePage // nil when it is not known, or gone
	slot  uint32         // this and the next as in Record, whose mapping a reader that hangs can outlive
	peak  accounting.Bytes
	told  bool // the client is shown what follows
	shown Shown
}

// Shown is what a lease's client is told of its device's memory, so that it need not ask.
// All in bytes.
type Shown struct {
	Beyond  accounting.Bytes // free, beyond the credit
	Used    accounting.Bytes // of Total, the credit included
	Total   accounting.Bytes // the budget
	Limited bool             // it is below what the device can grant
}

// NewWords is for a daemon that begins. onClamp is told of each lease whose word claimed more credit than was
// granted; it may be called within any method.
func NewWords(onClamp func(arbiter.LeaseID)) *Words { return &Words{onClamp: onClamp, patience: 256} }

// Lease is the lease of a record, on the device with this index, in its client's page; see SetPage.
func (w *Words) Lease(record *statefile.Lease, index, device int, page *ipc.LeasePage) *Lease {
	return &Lease{Device: device, Record: record, Index: index, words: w, page: page, slot: record.Slot, peak: accounting.Bytes(record.Peak)}
}

// Opened says which of the arbiter's leases it is.
func (l *Lease) Opened(id arbiter.LeaseID) { l.ID = id }

// End ends a lease. Who has it still finds no record.
func (l *Lease) End() { l.Record, l.page = nil, nil }

// SetPage gives a lease its client's page. nil, for one that is not known, is about to be
// unmapped or whose client is gone: from now on the lease's word reads as no credit.
func (l *Lease) SetPage(page *ipc.LeasePage) { l.page = page }

// Epoch is the epoch of a lease's word, as its page shows it.
func (l *Lease) Epoch() (epoch uint16) {
	l.guarded(func() { epoch = ipc.Word(l.word().Load()).Epoch() })
	return epoch
}

// guarded runs f on a lease's slot. A fault in the page (its owner can punch
// holes into it, and memory to fill them may lack) takes the page from the lease
// instead of ending the daemon.
func (l *Lease) guarded(f func()) {
	if l.page != nil && l.page.Guard(f) != nil {
		l.page = nil
	}
}

func (l *Lease) word() *atomic.Uint64 { return l.page.Word(l.slot) }
func (l *Lease) low() *atomic.Uint64  { return l.page.Low(l.slot) }

// Credit returns the idle bytes in the word, clamped to [0, granted].
func (l *Lease) Credit(granted accounting.Bytes) (credit accounting.Bytes) {
	l.guarded(func() {
		if credit = accounting.Bytes(ipc.Word(l.word().Load()).Credit()); credit > granted {
			credit = granted
			l.words.onClamp(l.ID)
		}
	})
	return credit
}

// Take takes up to most idle bytes out of the word and returns what it got.
func (l *Lease) Take(granted, most accounting.Bytes) (taken accounting.Bytes) {
	l.guarded(func() {
		l.change(statefile.ChangeTake, granted, func(credit, flags uint64) (uint64, uint64, accounting.Bytes) {
			taken = min(accounting.Bytes(credit), most)
			return credit - uint64(taken), flags, granted - taken
		})
	})
	return taken
}

// Give adds n idle bytes to the word. False: there is no page; nothing changed.
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

// Free adds n idle bytes to the word as its client does that frees them.
func (l *Lease) Free(n accounting.Bytes) (freed bool) {
	l.guarded(func() {
		l.page.GiveCredit(l.slot, uint64(n))
		freed = true
	})
	return freed
}

// Grant notes that n bytes went to the thread that asked. The word keeps its credit and gets a new epoch, so that its low-water mark
// counts from here.
func (l *Lease) Grant(granted, n accounting.Bytes) {
	l.Record.Grant(uint64(granted + n))
	l.guarded(func() {
		// change folds the mark of the old epoch with the old sum.
		l.change(statefile.ChangeFlag, granted, func(credit, flags uint64) (uint64, uint64, accounting.Bytes) {
			return credit, flags, granted + n
		})
	})
	l.raisePeak(granted + n - l.Credit(granted+n))
}

// Flag sets the two flags of the word.
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

// Streams returns how many streams a lease has by its word; lent is false where that does not count
// them.
func (l *Lease) Streams() (n int, lent bool) {
	l.guarded(func() { n, lent = ipc.StreamsIn(l.page.Streams(l.slot).Load()) })
	return n, lent
}

// CloseStreams takes the count back: what it returns is all, and from here on each stream is asked for. It
// is written down before the word is closed, since a daemon that starts goes by the word only while
// that is open.
func (l *Lease) CloseStreams() (n int, lent bool) {
	l.guarded(func() {
		word := l.page.Streams(l.slot)
		for range l.words.patience {
			seen := word.Load()
			if n, lent = ipc.StreamsIn(seen); !lent {
				return
			}
			l.keepStreams(n)
			if word.CompareAndSwap(seen, 0) {
				return
			}
		}
		n, _ = ipc.StreamsIn(word.Swap(0) | ipc.StreamsOpen) // somebody changes it without a pause
		lent = true
		l.keepStreams(n)
	})
	return n, lent
}

func (l *Lease) keepStreams(n int) { atomic.StoreUint32(&l.Record.Streams, uint32(n)) }

// OpenStreams lends the count to the client, which has so many streams and may have most. It is closed.
func (l *Lease) OpenStreams(n, most int) (lent bool) {
	l.guarded(func() {
		n, most := uint64(min(n, ipc.StreamsMask)), uint64(min(most, ipc.StreamsMask))
		l.page.Streams(l.slot).Store(ipc.StreamsOpen | most<<ipc.StreamsMaxShift | n)
		lent = true
	})
	return lent
}

// Away writes to the state file how many of the lease's bytes do not count against its device. n is at most what is granted.
func (l *Lease) Away(n accounting.Bytes) { atomic.StoreUint64(&l.Record.Away, uint64(n)) }

// Limit shows the client its memory.max in force.
func (l *Lease) Limit(limit accounting.Bytes) {
	l.guarded(func() { l.page.Limit(l.slot).Store(uint64(limit)) })
	l.Hide()
}

// Peak returns the most bytes that were used at once since the lease was opened.
func (l *Lease) Peak(granted accounting.Bytes) accounting.Bytes {
	l.guarded(func() { l.fold(granted, ipc.Word(l.word().Load())) })
	return l.peak
}

// Pending returns the client's own figure of bytes freed in stream order.
func (l *Lease) Pending() (pending accounting.Bytes) {
	l.guarded(func() {
		pending = min(accounting.Bytes(l.page.Pending(l.slot).Load()), accounting.Bytes(l.Record.Granted))
	})
	return pending
}

// Recent returns the most bytes that were used at once since the word was last changed.
func (l *Lease) Recent(granted accounting.Bytes) (most accounting.Bytes) {
	l.guarded(func() { most = granted - l.least(granted, ipc.Word(l.word().Load())) })
	return most
}

// Told returns what the client says of its blocks.
func (l *Lease) Told() (told reading.Told) {
	l.guarded(func() {
		counts := l.page.Counts(l.slot).Load()
		if counts&ipc.CountsTold == 0 {
			return
		}
		told = reading.Told{
			Known: true, Soft: counts&ipc.CountsSoft != 0, Blocks: uint32(counts & ipc.CountsBlocksMax),
			Pools:    uint32(counts >> ipc.CountsPoolsShift & ipc.CountsPoolsMax),
			Imported: accounting.Bytes(l.page.Imported(l.slot).Load()),
			Managed:  accounting.Bytes(l.page.Managed(l.slot).Load()),
			Making:   int(counts >> ipc.CountsMakingShift & ipc.CountsMakingMax),
		}
	})
	return told
}

// Show tells a lease's client how its device's memory is now, at a time in milliseconds of
// CLOCK_MONOTONIC_COARSE.
func (l *Lease) Show(s Shown, at uint64) {
	l.guarded(func() {
		l.told, l.shown = true, s
		_, _, total, seen := l.page.Shown(l.slot)
		total.Store(uint64(s.Total))
		seen.Store(at)
		l.show(ipc.Word(l.word().Load()).Epoch(), s)
	})
}

// Hide has a lease's client ask again.
func (l *Lease) Hide() {
	l.guarded(func() {
		l.told = false
		room, _, _, _ := l.page.Shown(l.slot)
		room.Store(0)
	})
}

// show writes down what is shown from an epoch on. Before the credit word has that epoch,
// nobody takes it for true.
func (l *Lease) show(epoch uint16, s Shown) {
	if !l.told {
		return
	}
	flags := uint64(ipc.ShownTold)
	if s.Limited {
		flags |= ipc.ShownLimited
	}
	room, used, _, _ := l.page.Shown(l.slot)
	used.Store(uint64(s.Used))
	room.Store(uint64(ipc.MakeWord(uint64(s.Beyond), epoch, flags)))
}

// granted is what is shown when the sum that is granted has changed: what was given came out
// of what was free.
func (s Shown) granted(before, after accounting.Bytes) Shown {
	s.Beyond = s.Beyond.Plus(before).Less(after)
	s.Used = s.Used.Plus(after).Less(before)
	return s
}

// Lost notes that the lease's device is gone, so that the next daemon does not take it for alive.
func (l *Lease) Lost() {
	l.Hide()
	l.Record.Device |= statefile.LeaseLost
	l.Record.Granted, l.Record.Streams, l.Record.Contexts = 0, 0, 0
}

// Resize notes a change of granted that involves no word: a lease restored,
// closed, or charged for what the device says it holds.
func (l *Lease) Resize(granted accounting.Bytes) {
	l.Hide()
	atomic.StoreUint64(&l.Record.Granted, uint64(granted))
}

// change swaps the word by the rules of the state file: announce, swap, finish.
// next gets the clamped credit and the flags, and returns the new ones and what
// is granted afterwards. The low-water mark of the new epoch is set before the
// swap: a client that sees the new epoch in the word finds it there, and one that
// still sees the old leaves it alone.
func (l *Lease) change(kind uint32, granted accounting.Bytes,
	next func(credit, flags uint64) (uint64, uint64, accounting.Bytes)) {
	for range l.words.patience {
		old := ipc.Word(l.word().Load())
		swapped, shown := l.announce(kind, granted, old, next)
		if l.word().CompareAndSwap(uint64(old), uint64(swapped)) {
			stepSwapped(kind)
			l.shown = shown
			l.Record.Finish()
			return
		}
	}
	// The client changes the word without a pause. To end that, take all credit out at once, and add afterwards what is to be there to what the
	// client has freed meanwhile. This is the one change that is announced after the swap, because the credit is known only then: a daemon that dies
	// in between leaves the idle credit counted as used, until the client resumes and says what it uses.
	l.Record.Withdraw()
	epoch := ipc.Word(l.word().Load()).Epoch()
	empty := ipc.MakeWord(0, ipc.NextEpoch(epoch), ipc.FlagClosed)
	old := ipc.Word(l.word().Swap(uint64(empty))).WithEpoch(epoch)
	swapped, shown := l.announce(kind, granted, old, next)
	l.word().Add(uint64(swapped) - uint64(empty))
	l.shown = shown
	l.Record.Finish()
}

// stepSwapped is the place between a word's swap and the end of its change.
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

// announce works out a change and writes it down; it returns the word to be, and what is shown
// from then on.
func (l *Lease) announce(kind uint32, granted accounting.Bytes, old ipc.Word,
	next func(credit, flags uint64) (uint64, uint64, accounting.Bytes)) (ipc.Word, Shown) {
	credit := min(old.Credit(), uint64(granted))
	if credit != old.Credit() {
		l.words.onClamp(l.ID)
	}
	l.fold(granted, old)
	newCredit, flags, after := next(credit, old.Flags())
	swapped := ipc.MakeWord(newCredit, ipc.NextEpoch(old.Epoch()), flags)
	l.Record.Announce(kind, swapped.Epoch(), uint64(after))
	faults.At("mark.announced")
	l.low().Store(uint64(swapped.WithFlags(0)))
	faults.At("mark.stored")
	shown := l.shown.granted(granted, after)
	l.show(swapped.Epoch(), shown)
	return swapped, shown
}

// fold takes what the low-water mark shows into the peak, as long as the word is this one.
func (l *Lease) fold(granted accounting.Bytes, word ipc.Word) {
	l.raisePeak(granted - l.least(granted, word))
}

// least is the least credit that there was since the word's last change.
func (l *Lease) least(granted accounting.Bytes, word ipc.Word) accounting.Bytes {
	credit := min(accounting.Bytes(word.Credit()), granted)
	if low := ipc.Word(l.low().Load()); low.Epoch() == word.Epoch() {
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
