package pressure

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// Totals and averages of waiting time are those of the kernel's pressure files. The expected values are added up by hand, or come from a
// model that counts each millisecond and uses the kernel's formula. arbiter/pressure_test.go tests which requests count.

var begin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// at returns the time ms milliseconds after the beginning.
func at(ms int64) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }

// change sets the states that hold from a time on.
type change struct {
	ms         int64
	some, full bool
}

// TestTotals plays schedules whose totals are easily added up by hand.
func TestTotals(t *testing.T) {
	for _, test := range []struct {
		name       string
		changes    []change
		look       int64
		some, full int64 // ms
	}{
		{"nothing", nil, 10_000, 0, 0},
		{"nobody waits", []change{{0, false, false}}, 10_000, 0, 0},
		{"one waits, others go on", []change{{0, true, false}}, 7_123, 7_123, 0},
		{"one waits, nobody goes on", []change{{5, true, true}}, 105, 100, 100},
		{"full implies some", []change{{0, false, true}}, 1_000, 0, 0},
		{"on and off", []change{{0, true, false}, {300, false, false}, {1_000, true, true}, {1_001, true, false}, {4_000, false, false}}, 9_999, 3_300, 1},
		{"twice the same", []change{{0, true, true}, {40, true, true}, {90, false, false}, {95, false, false}}, 500, 90, 90},
		{"changes at one moment", []change{{10, true, true}, {10, false, false}, {10, true, false}}, 12, 2, 0},
		{"over many steps", []change{{1, true, true}, {3_600_001, false, false}}, 9_000_000, 3_600_000, 3_600_000},
		{"a clock that goes back", []change{{1_000, true, true}, {500, true, false}, {1_500, false, false}}, 2_000, 500, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			var tracker Tracker
			for _, c := range test.changes {
				tracker.Set(at(c.ms), c.some, c.full)
			}
			got := tracker.At(at(test.look))
			if got.Some.Total != time.Duration(test.some)*time.Millisecond || got.Full.Total != time.Duration(test.full)*time.Millisecond {
				t.Errorf("some %v, full %v; want %d and %d ms", got.Some.Total, got.Full.Total, test.some, test.full)
			}
		})
	}
}

// TestAverages checks the averages against values computed by hand: after one step, after long times by the exponential function, and at 0
// and 100 %.
func TestAverages(t *testing.T) {
	for _, test := range []struct {
		name    string
		changes []change
		look    int64
		want    [Averages]int
	}{
		{"before the first step", []change{{0, true, false}}, 1_999, [...]int{0, 0, 0}},
		// after one step an average is 100 % × (2048 − decay)/2048, with the decays 1677, 1981 and 2034: 18.11…, 3.27…, 0.68…
		{"one step", []change{{0, true, false}}, 2_000, [...]int{1811, 327, 68}},
		{"half a step", []change{{0, true, false}, {1_000, false, false}}, 2_000, [...]int{905, 163, 34}},
		// the share of a step is rounded down to whole percents: 19 ms of 2 s are 0 %
		{"less than a percent", []change{{0, true, false}, {19, false, false}}, 2_000, [...]int{0, 0, 0}},
		{"for ever", []change{{0, true, false}}, 3_600_000, [...]int{10000, 10000, 10000}},
		{"long ago", []change{{0, true, false}, {3_600_000, false, false}}, 36_000_000, [...]int{0, 0, 0}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var tracker Tracker
			for _, c := range test.changes {
				tracker.Set(at(c.ms), c.some, c.full)
			}
			if got := tracker.At(at(test.look)).Some.Averages; got != test.want {
				t.Errorf("averages %v, want %v", got, test.want)
			}
		})
	}
	var tracker Tracker
	tracker.Set(begin, true, true)
	for i, span := range [...]float64{10, 60, 300} { // as the exponential function says, except for rounding to 11 bits
		got := float64(tracker.At(begin.Add(time.Minute)).Full.Averages[i]) / 100
		if want := 100 * (1 - math.Exp(-60/span)); math.Abs(got-want) > 0.6 {
			t.Errorf("avg%.0f after a minute is %.2f, want about %.2f", span, got, want)
		}
	}
}

// model is the simplest implementation: it counts each millisecond, and computes each step in floating point and by the kernel's formula.
type model struct {
	some, full         bool
	ms                 int64
	totals             [2]int64
	inStep             [2]int64
	averages           [2][Averages]uint64
	stepsSinceTheStart int64
}

func (m *model) run(ms int64) {
	for ; m.ms < ms; m.ms++ {
		for i, on := range [...]bool{m.some, m.full && m.some} {
			if on {
				m.totals[i]++
				m.inStep[i]++
			}
		}
		if (m.ms+1)%2000 != 0 {
			continue
		}
		m.stepsSinceTheStart++
		for i := range m.averages {
			for k, decay := range [...]uint64{1677, 1981, 2034} {
				load, active := m.averages[i][k], uint64(m.inStep[i]*100/2000)*2048
				sum := load*decay + active*(2048-decay)
				if active >= load {
					sum += 2047
				}
				m.averages[i][k] = sum / 2048
			}
			m.inStep[i] = 0
		}
	}
}

func (m *model) line(i int) string {
	text := ""
	for _, a := range m.averages[i] {
		text += fmt.Sprintf("%d.%02d ", a>>11, (a&2047)*100>>11)
	}
	return text + fmt.Sprint(m.totals[i])
}

func lineOf(l Line) string {
	text := ""
	for _, a := range l.Averages {
		text += fmt.Sprintf("%d.%02d ", a/100, a%100)
	}
	return text + fmt.Sprint(l.Total.Milliseconds())
}

// TestModel drives a tracker and the model through the same random schedules. Reads in between must not change later results.
func TestModel(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		var m model
		var tracker Tracker
		tracker.Set(begin, false, false)
		for range 60 {
			span := [...]int64{r.Int64N(10), r.Int64N(3_000), r.Int64N(30_000), 2_000 * r.Int64N(5), r.Int64N(200_000)}[r.IntN(5)]
			m.run(m.ms + span)
			got := tracker.At(at(m.ms))
			if some, full := lineOf(got.Some), lineOf(got.Full); some != m.line(0) || full != m.line(1) {
				t.Fatalf("seed %d after %d ms: some %s, full %s; the model has %s and %s", seed, m.ms, some, full, m.line(0), m.line(1))
			}
			if r.IntN(3) > 0 {
				m.some, m.full = r.IntN(2) == 0, r.IntN(2) == 0
				tracker.Set(at(m.ms), m.some, m.full)
			}
		}
	}
}

// TestLongGaps: a long gap has the same result as a count at each step.
func TestLongGaps(t *testing.T) {
	for _, state := range []change{{0, false, false}, {0, true, false}, {0, true, true}} {
		for _, gap := range []int64{1, 1_999, 2_000, 2_001, 3_999_999, 4_000_000, 50_000_001} {
			var jumps, steps Tracker
			for _, tracker := range []*Tracker{&jumps, &steps} {
				tracker.Set(begin, true, true)
				tracker.Set(at(31_234), state.some, state.full)
			}
			for ms := int64(31_234); ms < gap; ms += 500 {
				steps.Set(at(ms), state.some, state.full)
			}
			for _, after := range []int64{0, 700, 2_000, 5_000} {
				look := at(max(gap, 31_234) + after)
				if got, want := jumps.At(look), steps.At(look); got != want {
					t.Errorf("%v over %d ms and %d more: %v, step by step %v", state, gap, after, got, want)
				}
				jumps.Set(look, after == 700, after == 700)
				steps.Set(look, after == 700, after == 700)
			}
		}
	}
}
