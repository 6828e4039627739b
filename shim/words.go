package shim

import (
	"sync/atomic"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/faults"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/statefile"
)

// Words is the daemon's hand on the credit words of all leases. It implements
// arbiter.Words. It is not safe for concurrent use among daemons' goroutines (the
// daemon's lock owns it); against the clients each change is a compare-and-swap.
type Words struct {
	// OnClamp is told of each lease whose word claimed more credit than was
	// granted. It may be called within any method. nil: nobody is told.
	OnClamp func(arbiter.LeaseID)

	leases   map[arbiter.LeaseID]*entry
	clamped  uint64
	patience int // how often a swap may fail before the change is made in another way
}

// entry is one lease: its slot in the client's page and its records.
type entry struct {
	id      arbiter.LeaseID
	page    *ipc.LeasePage // nil when it is not known, or gone
	slot    uint32
	record  *statefile.Lease
	index   int // of record
	answers statefile.Answers
	peak    accounting.Bytes
}

// NewWords returns an empty set.
func NewWords() *Words {
	return &Words{leases: map[arbiter.LeaseID]*entry{}, patience: 256}
}

// Add makes a lease's word known: slot record.Slot of its client's page. page may
// be nil: a lease whose page is not known (yet) has no credit.
func (w *Words) Add(id arbiter.LeaseID, page *ipc.LeasePage, answers statefile.Answers, record *statefile.Lease, index int) {
	w.leases[id] = &entry{id: id, page: page, slot: record.Slot, record: record, index: index, answers: answers,
		peak: accounting.Bytes(record.Peak)}
}

// Remove forgets a lease.
func (w *Words) Remove(id arbiter.LeaseID) { delete(w.leases, id) }

// Record returns a lease's record and its index in the state file, or nil.
func (w *Words) Record(id arbiter.LeaseID) (*statefile.Lease, int) {
	if e := w.leases[id]; e != nil {
		return e.record, e.index
	}
	return nil, 0
}

// DropPage is for a page that is about to be unmapped or whose client is gone:
// from now on the lease's word reads as no credit.
func (w *Words) DropPage(id arbiter.LeaseID) {
	if e := w.leases[id]; e != nil {
		e.page = nil
	}
}

// SetPage gives a lease a page again.
func (w *Words) SetPage(id arbiter.LeaseID, page *ipc.LeasePage) {
	if e := w.leases[id]; e != nil {
		e.page = page
	}
}

// Epoch is the epoch of a lease's word, as its page shows it.
func (w *Words) Epoch(id arbiter.LeaseID) (epoch uint16) {
	w.guarded(id, func(e *entry) { epoch = ipc.Word(e.word().Load()).Epoch() })
	return epoch
}

// Clamped counts words that were found with more credit than was granted.
func (w *Words) Clamped() uint64 { return w.clamped }

// guarded runs f on a lease's slot. A fault in the page (its owner can punch
// holes into it, and memory to fill them may lack) takes the page from the lease
// instead of ending the daemon.
func (w *Words) guarded(id arbiter.LeaseID, f func(e *entry)) {
	e := w.leases[id]
	if e == nil || e.page == nil {
		return
	}
	if err := e.page.Guard(func() { f(e) }); err != nil {
		e.page = nil
	}
}

func (e *entry) word() *atomic.Uint64 { return e.page.Word(e.slot) }
func (e *entry) low() *atomic.Uint64  { return e.page.Low(e.slot) }

// Credit returns the idle bytes in the word, clamped to [0, granted].
func (w *Words) Credit(id arbiter.LeaseID, granted accounting.Bytes) (credit accounting.Bytes) {
	w.guarded(id, func(e *entry) {
		if credit = creditOf(e.word().Load()); credit > granted {
			credit = granted
			w.clamp(e)
		}
	})
	return credit
}

// clamp counts and reports a word that held rubbish.
func (w *Words) clamp(e *entry) {
	w.clamped++
	if w.OnClamp != nil {
		w.OnClamp(e.id)
	}
}

// Take takes up to most idle bytes out of the word and returns what it got.
func (w *Words) Take(id arbiter.LeaseID, granted, most accounting.Bytes) (taken accounting.Bytes) {
	w.guarded(id, func(e *entry) {
		w.change(e, statefile.ChangeTake, granted, func(credit, flags uint64) (uint64, uint64, accounting.Bytes) {
			taken = min(accounting.Bytes(credit), most)
			return credit - uint64(taken), flags, granted - taken
		})
	})
	return taken
}

// Give adds n idle bytes to the word. False: there is no page; nothing changed.
func (w *Words) Give(id arbiter.LeaseID, granted, n accounting.Bytes) (given bool) {
	w.guarded(id, func(e *entry) {
		if uint64(granted)+uint64(n) > ipc.CreditLimit {
			return
		}
		w.change(e, statefile.ChangeGive, granted, func(credit, flags uint64) (uint64, uint64, accounting.Bytes) {
			return credit + uint64(n), flags, granted + n
		})
		given = true
	})
	return given
}

// Grant notes that n bytes went to the thread that asked with this request.
// The word keeps its credit and gets a new epoch, so that its low-water mark
// counts from here.
func (w *Words) Grant(id arbiter.LeaseID, granted, n accounting.Bytes, request uint64) {
	e := w.leases[id]
	if e == nil {
		return
	}
	e.record.Grant(e.answers, e.index, request, uint64(n), uint64(granted+n))
	faults.At("grant.kept")
	w.guarded(id, func(e *entry) {
		// change folds the mark of the old epoch with the old sum.
		w.change(e, statefile.ChangeFlag, granted, func(credit, flags uint64) (uint64, uint64, accounting.Bytes) {
			return credit, flags, granted + n
		})
	})
	e.raisePeak(granted + n - w.Credit(id, granted+n))
}

// Flag sets the two flags of the word.
func (w *Words) Flag(id arbiter.LeaseID, closed, notify bool) {
	flags := uint64(0)
	if closed {
		flags |= ipc.FlagClosed
	}
	if notify {
		flags |= ipc.FlagNotify
	}
	w.guarded(id, func(e *entry) {
		granted := accounting.Bytes(e.record.Granted)
		w.change(e, statefile.ChangeFlag, granted, func(credit, _ uint64) (uint64, uint64, accounting.Bytes) {
			return credit, flags, granted
		})
	})
}

// Limit shows the client its memory.max in force.
func (w *Words) Limit(id arbiter.LeaseID, limit accounting.Bytes) {
	w.guarded(id, func(e *entry) { e.page.Limit(e.slot).Store(uint64(limit)) })
}

// Peak returns the most bytes that were used at once since the lease was opened.
func (w *Words) Peak(id arbiter.LeaseID, granted accounting.Bytes) accounting.Bytes {
	e := w.leases[id]
	if e == nil {
		return 0
	}
	w.guarded(id, func(e *entry) { e.fold(granted) })
	return e.peak
}

// Pending returns the client's own figure of bytes freed in stream order.
func (w *Words) Pending(id arbiter.LeaseID) (pending accounting.Bytes) {
	w.guarded(id, func(e *entry) {
		pending = min(accounting.Bytes(e.page.Pending(e.slot).Load()), accounting.Bytes(e.record.Granted))
	})
	return pending
}

// Recent returns the most bytes that were used at once since the word was last changed.
func (w *Words) Recent(id arbiter.LeaseID, granted accounting.Bytes) (most accounting.Bytes) {
	w.guarded(id, func(e *entry) { most = granted - e.least(granted, ipc.Word(e.word().Load())) })
	return most
}

// Told returns what the client says of its blocks.
func (w *Words) Told(id arbiter.LeaseID) (told arbiter.Told) {
	w.guarded(id, func(e *entry) {
		counts := e.page.Counts(e.slot).Load()
		if counts&ipc.CountsTold == 0 {
			return
		}
		told = arbiter.Told{
			Known: true, Soft: counts&ipc.CountsSoft != 0, Blocks: uint32(counts & ipc.CountsBlocksMax),
			Pools:    uint32(counts >> ipc.CountsPoolsShift & ipc.CountsPoolsMax),
			Imported: accounting.Bytes(e.page.Imported(e.slot).Load()),
		}
	})
	return told
}

// Resize notes a change of granted that involves no word: a lease restored,
// closed, or charged for what the device says it holds.
func (w *Words) Resize(id arbiter.LeaseID, granted accounting.Bytes) {
	if e := w.leases[id]; e != nil {
		atomic.StoreUint64(&e.record.Granted, uint64(granted))
	}
}

// change swaps the word by the rules of the state file: announce, swap, finish.
// next gets the clamped credit and the flags, and returns the new ones and what
// is granted afterwards. The low-water mark of the new epoch is set before the
// swap: a client that sees the new epoch in the word finds it there, and one that
// still sees the old leaves it alone.
func (w *Words) change(e *entry, kind uint32, granted accounting.Bytes,
	next func(credit, flags uint64) (uint64, uint64, accounting.Bytes)) {
	for range w.patience {
		old := ipc.Word(e.word().Load())
		swapped := w.announce(e, kind, granted, old, next)
		if e.word().CompareAndSwap(uint64(old), uint64(swapped)) {
			stepSwapped(kind)
			e.record.Finish()
			return
		}
	}
	// Somebody changes the word without a pause. So that he cannot hold the lock up,
	// all credit is taken out at once, and what is to be there is added to what was
	// given meanwhile.
	epoch := ipc.Word(e.word().Load()).Epoch()
	empty := ipc.MakeWord(0, ipc.NextEpoch(epoch), ipc.FlagClosed)
	old := ipc.Word(e.word().Swap(uint64(empty))).WithEpoch(epoch)
	swapped := w.announce(e, kind, granted, old, next)
	e.word().Add(uint64(swapped) - uint64(empty))
	e.record.Finish()
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

// announce works out a change and writes it down; it returns the word to be.
func (w *Words) announce(e *entry, kind uint32, granted accounting.Bytes, old ipc.Word,
	next func(credit, flags uint64) (uint64, uint64, accounting.Bytes)) ipc.Word {
	credit := min(old.Credit(), uint64(granted))
	if credit != old.Credit() {
		w.clamp(e)
	}
	e.foldLow(granted, old)
	newCredit, flags, after := next(credit, old.Flags())
	swapped := ipc.MakeWord(newCredit, ipc.NextEpoch(old.Epoch()), flags)
	e.record.Announce(kind, swapped.Epoch(), uint64(after))
	faults.At("mark.announced")
	e.low().Store(uint64(swapped.WithFlags(0)))
	faults.At("mark.stored")
	return swapped
}

// fold takes what the low-water mark shows into the peak.
func (e *entry) fold(granted accounting.Bytes) {
	e.foldLow(granted, ipc.Word(e.word().Load()))
}

func (e *entry) foldLow(granted accounting.Bytes, word ipc.Word) {
	e.raisePeak(granted - e.least(granted, word))
}

// least is the least credit that there was since the word's last change.
func (e *entry) least(granted accounting.Bytes, word ipc.Word) accounting.Bytes {
	credit := min(accounting.Bytes(word.Credit()), granted)
	if low := ipc.Word(e.low().Load()); low.Epoch() == word.Epoch() {
		credit = min(credit, accounting.Bytes(low.Credit()))
	}
	return credit
}

func (e *entry) raisePeak(used accounting.Bytes) {
	if used > e.peak {
		e.peak = used
		atomic.StoreUint64(&e.record.Peak, uint64(used))
	}
}

func creditOf(word uint64) accounting.Bytes { return accounting.Bytes(ipc.Word(word).Credit()) }
