package ipc

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file checks the steps on a credit word, each with its result worked out by hand, and that clients and a daemon
// which change a word at the same time lose no byte. page_test.go has the words in a page; cshim/core has the
// client's steps in C.

func word(credit uint64, epoch uint16, flags uint64) *atomic.Uint64 {
	var w atomic.Uint64
	w.Store(uint64(MakeCreditWord(credit, epoch, flags)))
	return &w
}

func TestCreditWordString(t *testing.T) {
	w := MakeCreditWord(4096, 7, FlagClosed|FlagNotify)
	if got := w.String(); got != "credit 4096 epoch 7 CLOSED NOTIFY" {
		t.Error(got)
	}
	if got := w.WithFlags(0).WithEpoch(8).WithCredit(1).String(); got != "credit 1 epoch 8" {
		t.Error(got)
	}
}

func TestTakeCredit(t *testing.T) {
	const e = 5
	for _, c := range []struct {
		name      string
		word      CreditWord
		n         uint64
		ok        bool
		wordAfter CreditWord
	}{
		{"some", MakeCreditWord(100, e, 0), 30, true, MakeCreditWord(70, e, 0)},
		{"all", MakeCreditWord(100, e, 0), 100, true, MakeCreditWord(0, e, 0)},
		{"one too many", MakeCreditWord(100, e, 0), 101, false, MakeCreditWord(100, e, 0)},
		{"none of none", MakeCreditWord(0, e, 0), 1, false, MakeCreditWord(0, e, 0)},
		{"closed", MakeCreditWord(100, e, FlagClosed), 1, false, MakeCreditWord(100, e, FlagClosed)},
		{"notify leaves it open", MakeCreditWord(100, e, FlagNotify), 1, true, MakeCreditWord(99, e, FlagNotify)},
		{"all that fits", MakeCreditWord(CreditLimit, e, 0), CreditLimit, true, MakeCreditWord(0, e, 0)},
		{"more than a word can hold", MakeCreditWord(CreditLimit, e, 0), CreditLimit + 1, false, MakeCreditWord(CreditLimit, e, 0)},
		{"the largest number", MakeCreditWord(CreditLimit, e, 0), ^uint64(0), false, MakeCreditWord(CreditLimit, e, 0)},
	} {
		w, low := word(0, 0, 0), word(CreditLimit, e, 0)
		w.Store(uint64(c.word))
		old, ok := TakeCredit(w, low, c.n)
		if old != c.word || ok != c.ok || CreditWord(w.Load()) != c.wordAfter {
			t.Errorf("%s: found %v, %t, left %v", c.name, old, ok, CreditWord(w.Load()))
		}
		want := MakeCreditWord(CreditLimit, e, 0)
		if c.ok {
			want = c.wordAfter.WithFlags(0)
		}
		if CreditWord(low.Load()) != want {
			t.Errorf("%s: low %v, want %v", c.name, CreditWord(low.Load()), want)
		}
	}
}

func TestGiveCredit(t *testing.T) {
	for _, c := range []struct {
		name      string
		word      CreditWord
		n         uint64
		wordAfter CreditWord
	}{
		{"some", MakeCreditWord(100, 3, 0), 30, MakeCreditWord(130, 3, 0)},
		{"into a closed word", MakeCreditWord(0, 3, FlagClosed|FlagNotify), 7, MakeCreditWord(7, 3, FlagClosed|FlagNotify)},
		{"up to the brim", MakeCreditWord(CreditLimit-1, 3, FlagNotify), 1, MakeCreditWord(CreditLimit, 3, FlagNotify)},
		{"over the brim", MakeCreditWord(CreditLimit-1, 3, 0), 2, MakeCreditWord(CreditLimit, 3, 0)},
		{"the largest number", MakeCreditWord(1, 3, 0), ^uint64(0), MakeCreditWord(CreditLimit, 3, 0)},
	} {
		w := word(0, 0, 0)
		w.Store(uint64(c.word))
		if old := GiveCredit(w, c.n); old != c.word || CreditWord(w.Load()) != c.wordAfter {
			t.Errorf("%s: found %v, left %v", c.name, old, CreditWord(w.Load()))
		}
	}
}

func TestLowWaterMark(t *testing.T) {
	for _, c := range []struct {
		name     string
		low, now CreditWord
		want     CreditWord
	}{
		{"lower", MakeCreditWord(10, 4, 0), MakeCreditWord(9, 4, 0), MakeCreditWord(9, 4, 0)},
		{"not lower", MakeCreditWord(10, 4, 0), MakeCreditWord(11, 4, 0), MakeCreditWord(10, 4, 0)},
		{"the daemon has written the next epoch's already", MakeCreditWord(50, 5, 0), MakeCreditWord(10, 4, 0), MakeCreditWord(50, 5, 0)},
		{"an older epoch's", MakeCreditWord(50, 3, 0), MakeCreditWord(10, 4, 0), MakeCreditWord(50, 3, 0)},
	} {
		low := word(0, 0, 0)
		low.Store(uint64(c.low))
		if lower(low, c.now); CreditWord(low.Load()) != c.want {
			t.Errorf("%s: %v, want %v", c.name, CreditWord(low.Load()), c.want)
		}
	}
}

func TestEpochs(t *testing.T) {
	const last = 1<<EpochBits - 1
	if NextEpoch(0) != 1 || NextEpoch(last) != 0 {
		t.Errorf("next of 0 is %d, of the last %d", NextEpoch(0), NextEpoch(last))
	}
}

// change makes a change of a credit word as the daemon does: it replaces the value w by f(w) with the given epoch,
// and returns both values.
//
// f may run several times if clients change the credit meanwhile; only the last run counts. Before f returns, it may
// store the low-water mark for the value that it returns. No client changes a mark of an epoch that the word does not
// have yet. Every client that sees the new epoch in the word finds its mark.
//
// change is safe for concurrent use with the clients' steps. Two concurrent changes of one word would share an epoch;
// the caller must prevent them.
func change(word *atomic.Uint64, epoch uint16, f func(old CreditWord) CreditWord) (old, new CreditWord) {
	for {
		old = CreditWord(word.Load())
		new = f(old).WithEpoch(epoch)
		if word.CompareAndSwap(uint64(old), uint64(new)) {
			return old, new
		}
	}
}

func TestChange(t *testing.T) {
	w := word(100, 3, FlagNotify)
	old, now := change(w, 4, func(w CreditWord) CreditWord {
		return w.WithCredit(w.Credit() - 60).WithFlags(FlagClosed).WithEpoch(99)
	})
	if old != MakeCreditWord(100, 3, FlagNotify) || now != MakeCreditWord(40, 4, FlagClosed) || CreditWord(w.Load()) != now {
		t.Errorf("%v became %v, the word is %v", old, now, CreditWord(w.Load()))
	}
	// A client changes the word between change's load and its swap: f runs again on the new value.
	runs := 0
	old, now = change(w, 5, func(w2 CreditWord) CreditWord {
		if runs++; runs == 1 {
			GiveCredit(w, 1)
		}
		return w2.WithCredit(w2.Credit() + 10)
	})
	if runs != 2 || old.Credit() != 41 || now.Credit() != 51 {
		t.Errorf("%d runs, %v became %v", runs, old, now)
	}
}

// TestCreditIsConserved lets clients take and return credit while the daemon grants, recalls, closes and opens. At
// the end no byte is lost or added.
func TestCreditIsConserved(t *testing.T) {
	const clients, changes = 8, 4000
	w, low := word(1000, 0, 0), word(1000, 0, 0)
	var stop atomic.Bool
	var held atomic.Uint64
	var taken, refused atomic.Uint64
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			mine := uint64(0)
			for !stop.Load() {
				n := rng.Uint64N(64)
				if n == 0 {
					runtime.Gosched() // on a machine with few cores the other goroutines must run, too
				}
				if _, ok := TakeCredit(w, low, n); ok {
					taken.Add(1)
					if n%4 != 0 {
						GiveCredit(w, n) // most are given back at once, so that gives race too
					} else {
						mine += n
					}
				} else {
					refused.Add(1)
					GiveCredit(w, mine)
					mine = 0
				}
			}
			held.Add(mine)
		})
	}
	granted, epoch := uint64(1000), uint16(0)
	rng := rand.New(rand.NewPCG(2, 2))
	for n := 0; n < changes || taken.Load() < changes || refused.Load() < changes; n++ {
		runtime.Gosched()
		epoch = NextEpoch(epoch)
		step, shut := rng.Uint64N(100), rng.IntN(2) == 0
		grow := rng.IntN(2) == 0
		old, now := change(w, epoch, func(w CreditWord) CreditWord {
			credit := w.Credit() + step
			if !grow {
				credit = w.Credit() - min(step, w.Credit())
			}
			flags := uint64(FlagNotify)
			if shut {
				flags = FlagClosed
			}
			w = w.WithCredit(credit).WithFlags(flags)
			low.Store(uint64(w.WithFlags(0).WithEpoch(epoch)))
			return w
		})
		granted += now.Credit() - old.Credit() // wraps around if credit was recalled, and so subtracts it
		if got := CreditWord(w.Load()); got.Flags() != now.Flags() || got.Epoch() != epoch {
			t.Fatalf("clients changed more than credit: %v after %v", got, now)
		}
		if got := CreditWord(low.Load()); got.Epoch() != epoch || got.Flags() != 0 || got.Credit() > now.Credit() {
			t.Fatalf("low is %v after %v", got, now)
		}
	}
	stop.Store(true)
	bounded.Within(t, "all come to an end", wg.Wait)
	if credit := CreditWord(w.Load()).Credit(); credit+held.Load() != granted {
		t.Errorf("credit %d + held %d is not granted %d", credit, held.Load(), granted)
	}
}
