package shim

import (
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/reading"
	"github.com/gpuarb/gpuarb/internal/statefile"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/bounded"
)

// The daemon changes credit words and stream counts on a page that its client changes at the same
// time. Nothing is lost or counted twice, and a hostile client cannot delay the daemon.
// arbiter/fake_test.go has the fake word of the arbiter's tests, and package ipc tests the page.

var _ arbiter.CreditWord = (*Lease)(nil)

// bench is a lease on a real page.
type bench struct {
	*Lease
	page   *ipc.LeasePage
	record *statefile.Lease
	clamps *int // number of times that the word was clamped
}

func newBench(t *testing.T) bench {
	t.Helper()
	page, err := ipc.NewPage()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = page.Close() })
	record := &statefile.Lease{Slot: 3}
	clamps := new(int)
	words := NewWords(func(arbiter.LeaseID) { *clamps++ })
	return bench{Lease: words.Lease(record, 0, 0, page), page: page, record: record, clamps: clamps}
}

func (b bench) word() ipc.CreditWord { return ipc.CreditWord(b.page.CreditWord(3).Load()) }

// check compares word and record with the expected values.
func (b bench) check(t *testing.T, credit, granted, peak uint64) {
	t.Helper()
	if got := b.word().Credit(); got != credit {
		t.Errorf("credit %d, want %d", got, credit)
	}
	if b.record.Granted != granted {
		t.Errorf("recorded as granted %d, want %d", b.record.Granted, granted)
	}
	if b.record.Open != statefile.ChangeNone {
		t.Errorf("change %d is still open", b.record.Open)
	}
	if got := b.Peak(accounting.Bytes(granted)); uint64(got) != peak {
		t.Errorf("peak %d, want %d", got, peak)
	}
}

func TestLifeOfAWord(t *testing.T) {
	b := newBench(t)
	b.Grant(0, 100)
	b.check(t, 0, 100, 100)
	if !b.Give(100, 50) {
		t.Fatal("could not give")
	}
	b.check(t, 50, 150, 100)
	if !b.page.TakeCredit(3, 30) || b.page.TakeCredit(3, 30) {
		t.Fatal("the client must get 30 of 50, and no more 30")
	}
	b.page.GiveCredit(3, 30+100) // both blocks are freed, and the mark stays
	b.check(t, 150, 150, 130)
	b.Grant(150, 10) // 10 bytes are used; the peak must not be computed from the old low-water mark and the new sum
	b.check(t, 150, 160, 130)
	if got := b.Take(160, 70); got != 70 {
		t.Errorf("took %d, want 70", got)
	}
	b.check(t, 80, 90, 130)
	if got := b.Take(90, accounting.Max); got != 80 {
		t.Errorf("took %d, want the 80 that are idle", got)
	}
	b.check(t, 0, 10, 130)
}

func TestFlagsKeepTheCredit(t *testing.T) {
	b := newBench(t)
	b.Give(0, 50)
	b.Flag(true, true)
	if w := b.word(); !w.Closed() || !w.Notify() || w.Credit() != 50 {
		t.Errorf("word: %v", w)
	}
	if b.page.TakeCredit(3, 1) {
		t.Error("a closed word gave credit")
	}
	b.Flag(false, false)
	if w := b.word(); w.Closed() || w.Notify() || w.Credit() != 50 {
		t.Errorf("word: %v", w)
	}
}

func TestEachChangeHasItsEpoch(t *testing.T) {
	b := newBench(t)
	seen := map[uint16]bool{b.word().Epoch(): true}
	for _, change := range []func(){
		func() { b.Give(0, 50) },
		func() { b.Take(50, 10) },
		func() { b.Flag(true, false) },
		func() { b.Grant(40, 5) },
	} {
		change()
		if seen[b.word().Epoch()] {
			t.Errorf("epoch %d comes again", b.word().Epoch())
		}
		seen[b.word().Epoch()] = true
	}
}

func TestRubbishIsClamped(t *testing.T) {
	b := newBench(t)
	b.Give(0, 50)
	b.page.CreditWord(3).Store(ipc.CreditMask)
	if got := b.Credit(50); got != 50 {
		t.Errorf("credit %d of 50 granted", got)
	}
	if got := b.Take(50, accounting.Max); got != 50 {
		t.Errorf("took %d of 50 granted", got)
	}
	b.check(t, 0, 0, 0)
	if *b.clamps == 0 {
		t.Error("not counted")
	}
	b.page.Pending(3).Store(^uint64(0))
	if got := b.Pending(); got != 0 {
		t.Errorf("pending %d of 0 granted", got)
	}
}

func TestWhatTheClientTells(t *testing.T) {
	b := newBench(t)
	if published := b.Report(); published != (reading.ClientReport{}) {
		t.Errorf("nothing is said, and read as %+v", published)
	}
	b.page.Imported(3).Store(7)
	b.page.Counts(3).Store(1<<62 | 5<<32 | 9)
	if published := b.Report(); published != (reading.ClientReport{}) {
		t.Errorf("without TOLD it means nothing: %+v", published)
	}
	b.page.Counts(3).Store(1<<63 | 1<<62 | 5<<32 | 9)
	if published := b.Report(); published != (reading.ClientReport{Known: true, Soft: true, Blocks: 9, Pools: 5, Imported: 7}) {
		t.Errorf("%+v", published)
	}
	b.page.Counts(3).Store(^uint64(0))
	if published := b.Report(); published.Blocks != 1<<32-1 || published.Pools != 1<<16-1 {
		t.Errorf("%+v", published)
	}
}

func TestMostUsedSinceTheLastChange(t *testing.T) {
	b := newBench(t)
	b.Give(0, 50)
	b.page.TakeCredit(3, 40)
	b.page.GiveCredit(3, 40)
	if got := b.Recent(50); got != 40 {
		t.Errorf("%d", got)
	}
	b.Flag(false, false)
	if got := b.Recent(50); got != 0 {
		t.Errorf("%d after a change", got)
	}
}

// TestHoles checks that the daemon survives when the client punches holes into its page.
func TestHoles(t *testing.T) {
	b := newBench(t)
	b.Give(0, 50)
	if err := unix.Fallocate(b.page.FD(), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, ipc.PageSize); err != nil {
		t.Fatal(err)
	}
	if got := b.Credit(50); got != 0 {
		t.Errorf("credit %d out of a hole", got)
	}
}

func TestNoPage(t *testing.T) {
	b := newBench(t)
	b.SetPage(nil)
	if b.Give(0, 1) || b.Take(1, 1) != 0 || b.Credit(1) != 0 {
		t.Error("it has no page and yet a word")
	}
	b.Flag(true, true)
	b.Limit(1)
	b.Grant(0, 5)
	if b.record.Granted != 5 {
		t.Error("a grant without a page was not recorded")
	}
}

// TestSumIsConserved lets clients take and give credit while the daemon gives, takes and flags. At
// the end of each round, granted − credit must equal what the clients hold.
func TestSumIsConserved(t *testing.T) {
	for name, maxSwaps := range map[string]int{"by swaps": 256, "without patience": 0} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.words.maxSwaps = maxSwaps
			conserve(t, b)
		})
	}
}

// TestALostSwapIsNotFinished checks a daemon that dies while it takes the word by force. It must
// leave no announcement of a swap that failed, because the next daemon would take that change for
// completed.
func TestALostSwapIsNotFinished(t *testing.T) {
	b := newBench(t)
	b.words.maxSwaps = 1
	b.Give(0, 100)
	b.Resize(100)
	spent, calls := uint64(40), 0
	died := func() (died bool) {
		defer func() { died = recover() != nil }()
		b.change(statefile.ChangeTake, 100, func(credit, flags uint64) (uint64, uint64, accounting.Bytes) {
			if calls++; calls > 1 {
				panic("the daemon dies")
			}
			b.Lease.word().Add(-spent) // the client changes the word between the daemon's read and its swap
			return 0, flags, accounting.Bytes(100 - credit)
		})
		return
	}()
	b.record.Recover(ipc.CreditWord(b.Lease.word().Load()).Epoch(), true)
	if !died || b.record.Granted != 100 {
		t.Errorf("%d bytes of 100 are granted after a swap that was lost; died: %v", b.record.Granted, died)
	}
}

func conserve(t *testing.T, b bench) {
	const threads, rounds = 4, 20000
	held := make([]uint64, threads)
	var wg sync.WaitGroup
	for i := range threads {
		wg.Go(func() {
			for n := range rounds {
				if size := uint64(n%7 + 1); b.page.TakeCredit(3, size) {
					held[i] += size
				} else {
					b.page.GiveCredit(3, held[i])
					held[i] = 0
				}
			}
		})
	}
	granted := accounting.Bytes(0)
	for n := range rounds {
		switch n % 4 {
		case 0, 1:
			if b.Give(granted, 20) {
				granted += 20
			}
		case 2:
			granted -= b.Take(granted, 25)
		case 3:
			b.Flag(n%8 == 3, false)
		}
	}
	bounded.Within(t, "all come to an end", wg.Wait)
	used := uint64(0)
	for _, h := range held {
		used += h
	}
	if got := uint64(granted) - b.word().Credit(); got != used {
		t.Errorf("granted − credit is %d, the clients hold %d", got, used)
	}
	if b.record.Granted != uint64(granted) || *b.clamps != 0 {
		t.Errorf("recorded %d, want %d; clamped %d times, want never", b.record.Granted, granted, *b.clamps)
	}
}

// TestHammeredWord checks that the daemon completes each change although a client writes its word
// without a pause, and that the sums stay in their bounds.
func TestHammeredWord(t *testing.T) {
	b := newBench(t)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for n := uint64(0); !stop.Load(); n += 0x9e3779b97f4a7c15 {
				b.page.CreditWord(3).Store(n)
			}
		})
	}
	granted := accounting.Bytes(0)
	for range 20000 {
		if b.Give(granted, 1000) {
			granted += 1000
		}
		b.Flag(true, true)
		taken := b.Take(granted, 500)
		if taken > granted {
			t.Fatalf("%d of %d bytes were taken", taken, granted)
		}
		if granted -= taken; b.record.Granted != uint64(granted) {
			t.Fatalf("recorded %d, want %d", b.record.Granted, granted)
		}
	}
	stop.Store(true)
	bounded.Within(t, "all come to an end", wg.Wait)
}

// takeStream takes a stream without a request, as a client does.
func (b bench) takeStream() bool {
	word := b.page.Streams(3)
	for {
		seen := word.Load()
		if seen&ipc.StreamsOpen == 0 || seen&ipc.StreamsMask >= seen>>ipc.StreamsMaxShift&ipc.StreamsMask {
			return false
		}
		if word.CompareAndSwap(seen, seen+1) {
			return true
		}
	}
}

func (b bench) giveStream() bool {
	word := b.page.Streams(3)
	for {
		seen := word.Load()
		if seen&ipc.StreamsOpen == 0 || seen&ipc.StreamsMask == 0 {
			return false
		}
		if word.CompareAndSwap(seen, seen-1) {
			return true
		}
	}
}

func TestStreamsAreLent(t *testing.T) {
	b := newBench(t)
	b.record.Streams = 2
	if n, lent := b.Streams(); lent || n != 0 || b.takeStream() {
		t.Error("a word of zeros is lent")
	}
	if !b.OpenStreams(2, 3) || !b.takeStream() || b.takeStream() {
		t.Error("of 3 streams there were 2")
	}
	if n, lent := b.Streams(); !lent || n != 3 {
		t.Errorf("%d streams, lent %v", n, lent)
	}
	b.giveStream()
	if n, lent := b.CloseStreams(); !lent || n != 2 || b.record.Streams != 2 {
		t.Errorf("%d streams, lent %v, %d written down", n, lent, b.record.Streams)
	}
	if _, lent := b.CloseStreams(); lent || b.takeStream() || b.giveStream() {
		t.Error("it was taken back, and is lent still")
	}
	b.SetPage(nil)
	if b.OpenStreams(1, 3) {
		t.Error("lent without a page")
	}
}

// TestStreamsTakenFromWhoNeverRests checks that a client that changes its word without a pause
// cannot prevent the daemon from taking the count back.
func TestStreamsTakenFromWhoNeverRests(t *testing.T) {
	b := newBench(t)
	b.words.maxSwaps = 0
	b.OpenStreams(5, 9)
	if n, lent := b.CloseStreams(); !lent || n != 5 || b.record.Streams != 5 || b.takeStream() {
		t.Errorf("%d streams, lent %v, %d written down", n, lent, b.record.Streams)
	}
}

// TestStreamsHaveOneOwner lends a count and takes it back while clients use it. No stream is lost
// or counted twice, and there are never more than allowed.
func TestStreamsHaveOneOwner(t *testing.T) {
	b := newBench(t)
	const most, clients, rounds = 5, 4, 3000
	var mine, all atomic.Int64 // mine: minus the streams that clients destroyed while the daemon had the count; all: streams that exist
	var clientsDone sync.WaitGroup
	for range clients {
		clientsDone.Go(func() {
			for range rounds {
				if !b.takeStream() {
					continue
				}
				if n := all.Add(1); n > most {
					t.Errorf("%d streams of at most %d", n, most)
				}
				all.Add(-1)
				if !b.giveStream() {
					mine.Add(-1)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { clientsDone.Wait(); close(done) }()
	bounded.Within(t, "the clients end", func() {
		for n := 0; ; {
			b.OpenStreams(n, most)
			select {
			case <-done:
				n, _ = b.CloseStreams()
				if n += int(mine.Swap(0)); n != 0 {
					t.Errorf("%d streams are left", n)
				}
				return
			default:
			}
			n, _ = b.CloseStreams()
			n += int(mine.Swap(0))
		}
	})
}
