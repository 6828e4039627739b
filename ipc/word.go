package ipc

import (
	"fmt"
	"sync/atomic"
)

// Word is one value of a credit word: credit, epoch and flags together. It is a
// value and does not change; the word in the page is an *atomic.Uint64 (see
// LeasePage.Word), and every step on it replaces one Word by another.
type Word uint64

// MakeWord puts a word together. Credit above CreditLimit and epoch bits above
// EpochBits are cut off; of flags only FlagClosed and FlagNotify are taken.
func MakeWord(credit uint64, epoch uint16, flags uint64) Word {
	return Word(min(credit, CreditLimit) | uint64(epoch)<<EpochShift&EpochMask | flags&(FlagClosed|FlagNotify))
}

// Credit is the bytes that the client may take without asking.
func (w Word) Credit() uint64 { return uint64(w) & CreditMask }

// Epoch counts the daemon's changes, modulo 1<<EpochBits.
func (w Word) Epoch() uint16 { return uint16(uint64(w) & EpochMask >> EpochShift) }

// Closed tells that the fast path is shut: every allocation asks.
func (w Word) Closed() bool { return uint64(w)&FlagClosed != 0 }

// Notify tells that somebody waits, so that a free reports itself.
func (w Word) Notify() bool { return uint64(w)&FlagNotify != 0 }

// Flags is FlagClosed and FlagNotify as they are in the word.
func (w Word) Flags() uint64 { return uint64(w) & (FlagClosed | FlagNotify) }

// WithCredit is w with other credit, cut at CreditLimit.
func (w Word) WithCredit(bytes uint64) Word { return MakeWord(bytes, w.Epoch(), w.Flags()) }

// WithFlags is w with other flags.
func (w Word) WithFlags(flags uint64) Word { return MakeWord(w.Credit(), w.Epoch(), flags) }

// WithEpoch is w with another epoch.
func (w Word) WithEpoch(epoch uint16) Word { return MakeWord(w.Credit(), epoch, w.Flags()) }

// String is the word for logs: "credit 4096 epoch 7 CLOSED NOTIFY".
func (w Word) String() string {
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

// EpochAfter tells whether a is later than b, in the arithmetic of serial
// numbers: right as long as they are less than half the circle apart.
func EpochAfter(a, b uint16) bool {
	d := (a - b) & (1<<EpochBits - 1)
	return d != 0 && d < 1<<(EpochBits-1)
}

// Change is the daemon's step on a credit word: it replaces what it finds, w,
// by f(w) with the given epoch, and returns both values. f may run several
// times, as clients take and give meanwhile, so it must have no effects; the
// last run is the one that counts. Safe for concurrent use with every other
// step here, but two daemon-side changes of one word at a time would share an
// epoch: the caller sees to it that there is one.
func Change(word *atomic.Uint64, epoch uint16, f func(old Word) Word) (old, new Word) {
	old, new, _ = TryChange(word, epoch, func(w Word) (Word, bool) { return f(w), true })
	return old, new
}

// TryChange is Change for an f that may decline what it finds: when f returns
// false, nothing is changed and ok is false. A daemon that announced "take
// back 1 MiB" declines a word that holds less, and announces something else.
func TryChange(word *atomic.Uint64, epoch uint16, f func(old Word) (Word, bool)) (old, new Word, ok bool) {
	for {
		old = Word(word.Load())
		new, ok = f(old)
		if !ok {
			return old, old, false
		}
		new = new.WithEpoch(epoch)
		if word.CompareAndSwap(uint64(old), uint64(new)) {
			return old, new, true
		}
	}
}

// ResetLow starts the low-water mark anew after a Change to now: from here on it
// is the least credit seen since. Credit that a client took between the Change
// and this call, and noted already, stays noted.
func ResetLow(low *atomic.Uint64, now Word) {
	fresh := uint64(now.WithFlags(0))
	for {
		old := low.Load()
		if Word(old).Epoch() == now.Epoch() || low.CompareAndSwap(old, fresh) {
			return
		}
	}
}

// Take is the client's fast path: it takes n bytes out of the word if they are
// there and the word is not closed. The value that it found is returned in
// either case; only with ok does the caller own the bytes. It has no system
// call and no lock, and is safe for concurrent use.
func Take(word, low *atomic.Uint64, n uint64) (old Word, ok bool) {
	for {
		old = Word(word.Load())
		if old.Closed() || old.Credit() < n {
			return old, false
		}
		new := old - Word(n)
		if word.CompareAndSwap(uint64(old), uint64(new)) {
			lower(low, new)
			return old, true
		}
	}
}

// lower notes in the low-water mark that a client left the credit at now. A mark
// of an earlier epoch is replaced, one of a later epoch is left alone.
func lower(low *atomic.Uint64, now Word) {
	for {
		old := Word(low.Load())
		same := old.Epoch() == now.Epoch()
		if same && old.Credit() <= now.Credit() || !same && EpochAfter(old.Epoch(), now.Epoch()) {
			return
		}
		if low.CompareAndSwap(uint64(old), uint64(now.WithFlags(0))) {
			return
		}
	}
}

// Give puts n bytes back into the word, closed or not, and returns the value
// that it replaced: when that says Notify, the caller owes a FreedNotice. Credit
// stops at CreditLimit and never spills into the epoch. Safe for concurrent use.
func Give(word *atomic.Uint64, n uint64) (old Word) {
	for {
		old = Word(word.Load())
		credit := old.Credit() + min(n, CreditLimit)
		if word.CompareAndSwap(uint64(old), uint64(old.WithCredit(credit))) {
			return old
		}
	}
}
