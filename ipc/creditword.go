package ipc

// This file has the credit word in Go: its fields, and the client's two steps on it. layout.go describes its bits,
// page.go has its address, package shim changes it for the daemon, and cshim/core has the client's steps in C.

import (
	"fmt"
	"sync/atomic"
)

// CreditWord is one value of a credit word: credit, epoch and flags. It is immutable. The word in the page is an
// *atomic.Uint64 (see LeasePage.CreditWord), and each step replaces one value by another.
type CreditWord uint64

// MakeCreditWord combines credit, epoch and flags. It reduces credit to CreditLimit, and drops epoch bits above
// EpochBits and flags other than FlagClosed and FlagNotify.
func MakeCreditWord(credit uint64, epoch uint16, flags uint64) CreditWord {
	return CreditWord(min(credit, CreditLimit) | uint64(epoch)<<EpochShift&EpochMask | flags&(FlagClosed|FlagNotify))
}

// Credit returns the bytes that the client may take without asking.
func (w CreditWord) Credit() uint64 { return uint64(w) & CreditMask }

// Epoch returns the number of the daemon's changes, modulo 1<<EpochBits.
func (w CreditWord) Epoch() uint16 { return uint16(uint64(w) & EpochMask >> EpochShift) }

// Closed reports whether the client must ask the daemon for every allocation.
func (w CreditWord) Closed() bool { return uint64(w)&FlagClosed != 0 }

// Notify reports whether a request waits, so that the client must report each free.
func (w CreditWord) Notify() bool { return uint64(w)&FlagNotify != 0 }

// Flags returns FlagClosed and FlagNotify as they stand in the word.
func (w CreditWord) Flags() uint64 { return uint64(w) & (FlagClosed | FlagNotify) }

// WithCredit returns w with another credit, at most CreditLimit.
func (w CreditWord) WithCredit(bytes uint64) CreditWord {
	return MakeCreditWord(bytes, w.Epoch(), w.Flags())
}

// WithFlags returns w with other flags.
func (w CreditWord) WithFlags(flags uint64) CreditWord {
	return MakeCreditWord(w.Credit(), w.Epoch(), flags)
}

// WithEpoch returns w with another epoch.
func (w CreditWord) WithEpoch(epoch uint16) CreditWord {
	return MakeCreditWord(w.Credit(), epoch, w.Flags())
}

// String returns the word for logs: "credit 4096 epoch 7 CLOSED NOTIFY".
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

// NextEpoch returns the epoch after e; it wraps at 1<<EpochBits.
func NextEpoch(e uint16) uint16 { return (e + 1) & (1<<EpochBits - 1) }

// TakeCredit is the client's fast path: it takes n bytes from the word if the credit suffices and the word is open.
// It returns the value that it found. The caller owns the bytes only if ok is true. TakeCredit makes no system call,
// takes no lock, and is safe for concurrent use.
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

// lower records in the low-water mark that a client left the credit at now. It leaves a mark of another epoch
// unchanged: the daemon writes the mark of an epoch before it writes the epoch into the word.
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

// GiveCredit returns n bytes to the word, whether it is closed or open, and returns the value that it replaced. If
// that value has Notify, the caller must send a FreedNotice. Credit stops at CreditLimit and never spills into the
// epoch. GiveCredit is safe for concurrent use.
func GiveCredit(word *atomic.Uint64, n uint64) (old CreditWord) {
	for {
		old = CreditWord(word.Load())
		credit := old.Credit() + min(n, CreditLimit)
		if word.CompareAndSwap(uint64(old), uint64(old.WithCredit(credit))) {
			return old
		}
	}
}
