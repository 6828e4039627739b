package ipc

import (
	"fmt"
	"sync/atomic"
)

// CreditWord is one value of a credit word: credit, epoch and flags together. It is a
// value and does not change; the word in the page is an *atomic.Uint64 (see
// LeasePage.CreditWord), and every step on it replaces one CreditWord by another.
type CreditWord uint64

// MakeCreditWord puts a word together. Credit above CreditLimit and epoch bits above
// EpochBits are cut off; of flags only FlagClosed and FlagNotify are taken.
func MakeCreditWord(credit uint64, epoch uint16, flags uint64) CreditWord {
	return CreditWord(min(credit, CreditLimit) | uint64(epoch)<<EpochShift&EpochMask | flags&(FlagClosed|FlagNotify))
}

// Credit is the bytes that the client may take without asking.
func (w CreditWord) Credit() uint64 { return uint64(w) & CreditMask }

// Epoch counts the daemon's changes, modulo 1<<EpochBits.
func (w CreditWord) Epoch() uint16 { return uint16(uint64(w) & EpochMask >> EpochShift) }

// Closed tells that the fast path is shut: every allocation asks.
func (w CreditWord) Closed() bool { return uint64(w)&FlagClosed != 0 }

// Notify tells that somebody waits, so that a free reports itself.
func (w CreditWord) Notify() bool { return uint64(w)&FlagNotify != 0 }

// Flags is FlagClosed and FlagNotify as they are in the word.
func (w CreditWord) Flags() uint64 { return uint64(w) & (FlagClosed | FlagNotify) }

// WithCredit is w with other credit, cut at CreditLimit.
func (w CreditWord) WithCredit(bytes uint64) CreditWord {
	return MakeCreditWord(bytes, w.Epoch(), w.Flags())
}

// WithFlags is w with other flags.
func (w CreditWord) WithFlags(flags uint64) CreditWord {
	return MakeCreditWord(w.Credit(), w.Epoch(), flags)
}

// WithEpoch is w with another epoch.
func (w CreditWord) WithEpoch(epoch uint16) CreditWord {
	return MakeCreditWord(w.Credit(), epoch, w.Flags())
}

// String is the word for logs: "credit 4096 epoch 7 CLOSED NOTIFY".
func (w CreditWord) String() string {
	s := fmt.Sprintf("credit %d epoch %d", w.Credit(), w.Epoch())
	if w.Closed() {
		s += " CLOSED"
	}
	if w.Notify() {
		s += " NOTIFY"
	}
	return s
}

// NextEpoch is the epoch after e; it wraps at 1<<EpochBits.
func NextEpoch(e uint16) uint16 { return (e + 1) & (1<<EpochBits - 1) }

// TakeCredit is the client's fast path: it takes n bytes out of the word if they are
// there and the word is not closed. The value that it found is returned in
// either case; only with ok does the caller own the bytes. It has no system
// call and no lock, and is safe for concurrent use.
func TakeCredit(word, low *atomic.Uint64, n uint64) (old CreditWord, ok bool) {
	for {
		old = CreditWord(word.Load())
		if old.Closed() || old.Credit() < n {
			return old, false
		}
		new := old - CreditWord(n)
		if word.CompareAndSwap(uint64(old), uint64(new)) {
			lower(low, new)
			return old, true
		}
	}
}

// lower notes in the low-water mark that a client left the credit at now. A mark
// of another epoch is not a client's to touch: the daemon writes the mark of an
// epoch before it writes the epoch into the word.
func lower(low *atomic.Uint64, now CreditWord) {
	for {
		old := CreditWord(low.Load())
		if old.Epoch() != now.Epoch() || old.Credit() <= now.Credit() {
			return
		}
		if low.CompareAndSwap(uint64(old), uint64(now.WithFlags(0))) {
			return
		}
	}
}

// GiveCredit puts n bytes back into the word, closed or not, and returns the value
// that it replaced: when that says Notify, the caller owes a FreedNotice. Credit
// stops at CreditLimit and never spills into the epoch. Safe for concurrent use.
func GiveCredit(word *atomic.Uint64, n uint64) (old CreditWord) {
	for {
		old = CreditWord(word.Load())
		credit := old.Credit() + min(n, CreditLimit)
		if word.CompareAndSwap(uint64(old), uint64(old.WithCredit(credit))) {
			return old
		}
	}
}
