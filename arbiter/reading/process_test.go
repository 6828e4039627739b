package reading_test

import (
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/reading"
)

// Memory that a device reports for a process counts beside its grants if two readings agree, and as unexplained usage if contexts, rounding
// and imports do not explain it. The expected figures are computed by hand. arbiter/cost_test.go tests the charge.

const mib accounting.Bytes = 1 << 20

// figure is one reading of a process: the bytes that the device reports, and those that the process uses by its own count.
type figure struct {
	says, used       accounting.Bytes
	before, peak     accounting.Bytes // bytes used when the reading began; most bytes used since then
	overhead, excess accounting.Bytes // expected after the reading
}

func TestReadings(t *testing.T) {
	told := reading.ClientReport{Known: true}
	cases := []struct {
		name     string
		told     reading.ClientReport
		contexts int
		figures  []figure
	}{
		{"bytes alone", told, 0, []figure{{says: 5 * mib, used: 5 * mib}, {says: 5 * mib, used: 5 * mib}}},
		{"two readings agree", told, 0, []figure{{says: 9 * mib, used: 5 * mib}, {says: 9 * mib, used: 5 * mib, overhead: 4 * mib, excess: 4 * mib}}},
		{"the smaller of two", told, 0, []figure{{says: 9 * mib, used: 5 * mib}, {says: 7 * mib, used: 5 * mib, overhead: 2 * mib, excess: 2 * mib}}},
		{"freed meanwhile", told, 0, []figure{{says: 9 * mib, used: 5 * mib, before: 9 * mib}, {says: 9 * mib, used: 5 * mib, before: 9 * mib}}},
		{"taken and freed meanwhile", told, 0, []figure{{says: 9 * mib, used: 5 * mib, peak: 9 * mib},
			{says: 9 * mib, used: 5 * mib, peak: 9 * mib, overhead: 4 * mib}}},
		{"a context", told, 1, []figure{{says: 9 * mib, used: 5 * mib}, {says: 9 * mib, used: 5 * mib, overhead: 4 * mib}}},
		{"beyond a context", told, 1, []figure{{says: 19 * mib, used: 5 * mib}, {says: 19 * mib, used: 5 * mib, overhead: 14 * mib, excess: 4 * mib}}},
		{"rounding", reading.ClientReport{Known: true, Blocks: 2}, 0, []figure{{says: 9 * mib, used: 5 * mib}, {says: 9 * mib, used: 5 * mib, overhead: 4 * mib}}},
		{"imports", reading.ClientReport{Known: true, Imported: 3 * mib}, 0, []figure{{says: 9 * mib, used: 5 * mib}, {says: 9 * mib, used: 5 * mib, overhead: 4 * mib, excess: mib}}},
		{"nothing told", reading.ClientReport{}, 0, []figure{{says: 9 * mib, used: 5 * mib}, {says: 9 * mib, used: 5 * mib, overhead: 4 * mib}}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var costs reading.Costs
			var beyond reading.Extra
			began := time.Unix(1000, 0)
			for i, f := range c.figures {
				var p reading.Process
				beyond.BeginReading(f.before, false)
				p.Add(reading.Member{Extra: &beyond, Lease: 1, Used: f.used, Peak: f.peak, Contexts: c.contexts, Report: c.told})
				began = began.Add(time.Second)
				p.Read(reading.Device{Costs: &costs, Began: began, MaxContext: 10 * mib}, 1000, f.says, true)
				if beyond.Overhead != f.overhead || beyond.Excess != f.excess {
					t.Errorf("reading %d: overhead %v, excess %v, want %v and %v", i, beyond.Overhead, beyond.Excess, f.overhead, f.excess)
				}
			}
		})
	}
}

// TestExpectedCostEndsWhenConfirmed: an expected cost holds until the second reading that began after the context was made. The measured cost is
// then expected of other contexts.
func TestExpectedCostEndsWhenConfirmed(t *testing.T) {
	var costs reading.Costs
	var beyond reading.Extra
	made := time.Unix(1000, 0)
	beyond.ContextsMade(made)
	beyond.Expect(9 * mib)
	for i, want := range []accounting.Bytes{9 * mib, 9 * mib, 4 * mib} {
		var p reading.Process
		p.Add(reading.Member{Extra: &beyond, Lease: 1, Contexts: 1, Report: reading.ClientReport{Known: true}})
		p.Read(reading.Device{Costs: &costs, Began: made.Add(time.Duration(i-1) * time.Second), MaxContext: 10 * mib}, 1000, 4*mib, true)
		if got := beyond.Cost(); got != want {
			t.Errorf("after reading %d it costs %v, want %v", i, got, want)
		}
	}
	if got := costs.Expected(); got != 4*mib {
		t.Errorf("the next is expected to cost %v", got)
	}
}

// TestFreedContextsUntilReading: when contexts of a lease end, their bytes stay available to the next contexts of the lease until a reading
// that began after this end.
func TestFreedContextsUntilReading(t *testing.T) {
	var costs reading.Costs
	beyond := reading.Extra{Overhead: 8 * mib}
	now := time.Unix(1000, 0)
	beyond.FreeContexts(now, 1, 2)
	if got := beyond.FreedContexts(); got != 4*mib {
		t.Fatalf("one of two contexts that cost 8 MiB left %v", got)
	}
	var p reading.Process
	p.Add(reading.Member{Extra: &beyond, Lease: 1, Contexts: 1, Report: reading.ClientReport{Known: true}})
	p.Read(reading.Device{Costs: &costs, Began: now.Add(time.Second), MaxContext: 10 * mib}, 1000, 4*mib, true)
	if got := beyond.FreedContexts(); got != 0 {
		t.Errorf("%v is still there after a reading", got)
	}
}

// TestEarlyReadingShowsWhatAContextCosts: an early reading that confirms a context shows what a context costs at least. Excess that
// begins before the next reading is then known to the byte. While the driver makes the context, an early reading says nothing.
func TestEarlyReadingShowsWhatAContextCosts(t *testing.T) {
	var costs reading.Costs
	var beyond reading.Extra
	made := time.Unix(1000, 0)
	beyond.ContextsMade(made)
	beyond.Expect(9 * mib)
	for i, c := range []struct {
		early, making          bool
		after                  time.Duration
		says, overhead, excess accounting.Bytes
	}{
		{true, true, 1 * time.Millisecond, 1 * mib, 0, 0},
		{true, false, 2 * time.Millisecond, 4 * mib, 4 * mib, 0},
		{false, false, 1 * time.Second, 20 * mib, 4 * mib, 0},
		{false, false, 2 * time.Second, 20 * mib, 20 * mib, 16 * mib},
	} {
		var p reading.Process
		beyond.BeginReading(0, c.making)
		p.Add(reading.Member{Extra: &beyond, Lease: 1, Contexts: 1, Report: reading.ClientReport{Known: true}})
		p.Read(reading.Device{Costs: &costs, Began: made.Add(c.after), MaxContext: 10 * mib, Early: c.early}, 1000, c.says, true)
		if beyond.Overhead != c.overhead || beyond.Excess != c.excess {
			t.Errorf("reading %d: overhead %v, excess %v, want %v and %v", i, beyond.Overhead, beyond.Excess, c.overhead, c.excess)
		}
	}
}

// TestFreedContextsAreNotExpected: a new context reuses part of what two ended contexts left. The first reading after their end shows that
// the rest is free, although the driver is still making the new context.
func TestFreedContextsAreNotExpected(t *testing.T) {
	var costs reading.Costs
	beyond := reading.Extra{Overhead: 8 * mib}
	now := time.Unix(1000, 0)
	beyond.FreeContexts(now, 2, 2)
	beyond.ContextsMade(now)
	beyond.ReuseFreed(4 * mib)
	beyond.Expect(0)
	if got := beyond.Cost(); got != 8*mib {
		t.Fatalf("before a reading it costs %v", got)
	}
	beyond.BeginReading(0, true)
	var p reading.Process
	p.Add(reading.Member{Extra: &beyond, Lease: 1, Contexts: 1, Report: reading.ClientReport{Known: true}})
	p.Read(reading.Device{Costs: &costs, Began: now.Add(time.Second), MaxContext: 10 * mib}, 1000, 0, true)
	if got := beyond.Cost(); got != 4*mib {
		t.Errorf("after a reading it costs %v", got)
	}
}
