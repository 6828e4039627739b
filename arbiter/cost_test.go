package arbiter_test

import (
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/reading"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// Memory that a device reports for a process, and that neither grants, contexts, rounding nor imports explain, is charged to that process
// alone. The expected figures are added up by hand. reading/process_test.go tests one process without an arbiter, and headroom_test.go room
// for contexts.

// telling returns a client whose library reports its blocks.
func (w *world) telling(told reading.ClientReport) *client {
	c := w.client(0, 0)
	told.Known = true
	c.word.told = told
	return c
}

// read takes n readings, a second apart, and returns the state of the device.
func (w *world) read(n int, processes ...arbiter.ProcessUsage) (d figures.DeviceState) {
	for range n {
		d = w.see(processes...)
	}
	return d
}

// TestExcessIsChargedToItsOwner: excess is charged to the budget of its own process only, from the second reading on. When the excess ends,
// the charge ends too.
func TestExcessIsChargedToItsOwner(t *testing.T) {
	w := newWorld(t, exact(size(1000)), 16000)
	other := w.client(0, 0)
	x := w.telling(reading.ClientReport{})
	x.contexts(1)
	x.must(300)
	x.free(100)
	if d := w.read(3, x.figure(264)); d.Overhead != 64 || x.row().Excess != 0 {
		t.Fatalf("a context is no excess: %+v, %+v", d, x.row())
	}
	if d := w.read(1, x.figure(3264)); x.row().Excess != 0 || d.Capacity != 16000-64 {
		t.Errorf("after one reading: %+v, %+v", x.row(), d)
	}
	d := w.read(1, x.figure(3264))
	if row := x.row(); row.Excess != 3000 || row.Overhead != 3064 || row.State != figures.StateOver || row.Used != 200 || row.Credit != 0 {
		t.Errorf("after the second: %+v", row)
	}
	if d.Overhead != 64 || d.Capacity != 16000-64 || d.Committed != 3200 {
		t.Errorf("what is charged is not taken off the capacity as well: %+v", d)
	}
	if o := x.alloc(1); o.Granted || o.Reason != arbiter.ReasonOverBudget {
		t.Errorf("%+v", o)
	}
	other.must(1000)
	w.read(3, x.figure(3264), other.figure(1000))
	if kinds := kindsOf(w.arb.Events()); strings.Count(kinds, "excess") != 1 || strings.Contains(kinds, "clamped") {
		t.Errorf("events: %s", kinds)
	}
	if row := other.row(); row.Excess != 0 || row.State != figures.StateRunning || row.Used != 1000 {
		t.Errorf("somebody else's row: %+v", row)
	}
	if d := w.read(1, x.figure(264), other.figure(1000)); x.row().Excess != 0 || d.Committed != 1200 {
		t.Errorf("unloaded: %+v, %+v", x.row(), d)
	}
	x.must(800)
}

// TestExcessIsNotGrantedToOthers: the device has no room for two, and memory that one process took without asking is not granted to another.
func TestExcessIsNotGrantedToOthers(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 1600)
	x, y := w.telling(reading.ClientReport{}), w.client(0, 0)
	x.contexts(1)
	w.read(3, x.figure(10))
	w.read(2, x.figure(1010))
	if o := y.alloc(591); o.Granted || o.Remaining != 590 {
		t.Errorf("%+v", o)
	}
	y.must(590)
}

// TestExcessDoesNotStopRecalls: idle credit of a lease with excess is recalled and granted as usual.
func TestExcessDoesNotStopRecalls(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 1600)
	x, y := w.telling(reading.ClientReport{}), w.client(0, 0)
	x.contexts(1)
	x.must(400)
	w.read(3, x.figure(410))
	x.free(400)
	w.read(2, x.figure(510))
	if row := x.row(); row.Excess != 500 || row.Credit != 400 {
		t.Fatalf("%+v", row)
	}
	y.must(1000)
	if row := x.row(); row.Credit != 90 {
		t.Errorf("recalled as far as is needed: %+v, %+v", row, w.arb.Snapshot(w.now).Devices[0])
	}
}

func TestNotExcess(t *testing.T) {
	const total = 1600 * mib
	for _, c := range []struct {
		name   string
		told   reading.ClientReport
		over   accounting.Bytes // beyond 100 MiB of blocks and one context of 10 MiB
		excess accounting.Bytes
	}{
		{"nothing", reading.ClientReport{}, 0, 0},
		{"one byte", reading.ClientReport{}, 1, 1},
		{"rounding of blocks", reading.ClientReport{Blocks: 3}, 6 * mib, 0},
		{"more than rounding", reading.ClientReport{Blocks: 3}, 6*mib + 5, 5},
		{"a pool's", reading.ClientReport{Blocks: 1, Pools: 1}, 34 * mib, 0},
		{"imports", reading.ClientReport{Imported: 300 * mib}, 300 * mib, 0},
		{"beyond imports", reading.ClientReport{Imported: 300 * mib}, 301 * mib, mib},
		{"absurd words", reading.ClientReport{Blocks: 1<<32 - 1, Pools: 1<<32 - 1, Imported: accounting.Max}, 900 * mib, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, exact(unlimited()), total)
			first := w.telling(reading.ClientReport{})
			first.contexts(1)
			w.read(3, first.figure(10*mib)) // so the context's cost is known
			x := w.telling(c.told)
			x.contexts(1)
			x.must(100 * mib)
			d := w.read(2, first.figure(10*mib), x.figure(110*mib+c.over))
			if row := x.row(); row.Excess != c.excess || d.Capacity != total-20*mib-(c.over-c.excess) {
				t.Errorf("%+v, %+v", row, d)
			}
		})
	}
}

// TestNoReportNoCharge: if a library reports nothing about its blocks, the overhead of its process lowers the capacity and is not
// charged.
func TestNoReportNoCharge(t *testing.T) {
	w := newWorld(t, exact(size(1000)), 16000)
	x := w.client(0, 0)
	x.contexts(1)
	if d := w.read(3, x.figure(5000)); x.row().Excess != 0 || d.Capacity != 11000 || x.row().State == figures.StateOver {
		t.Errorf("%+v, %+v", x.row(), d)
	}
}

// TestAllocatingIsNoExcess: if a program allocates and frees all the time, readings show memory that it has freed by the time they end. The
// low-water mark of its credit word explains it.
func TestAllocatingIsNoExcess(t *testing.T) {
	w := newWorld(t, exact(size(1000)), 16000)
	x := w.telling(reading.ClientReport{})
	x.contexts(1)
	w.read(3, x.figure(10))
	x.must(900)
	x.free(900)
	for i := range 6 {
		w.arb.Note(0)
		if !x.word.fast(900) {
			t.Fatalf("reading %d: no credit: %+v", i, x.row())
		}
		x.word.free(900)
		w.now = w.now.Add(time.Second)
		w.arb.Observe(w.now, arbiter.Usage{Device: 0, Processes: []arbiter.ProcessUsage{x.figure(910)}})
		if row := x.row(); row.Excess != 0 || row.State == figures.StateOver {
			t.Errorf("reading %d: %+v", i, row)
		}
	}
	// With nothing allocated, the same reading is excess.
	w.read(2, x.figure(910))
	if row := x.row(); row.Excess != 900 {
		t.Errorf("%+v", row)
	}
}

// TestCheapContextsDoNotRaiseOtherCharges: a program that makes its contexts look cheap does not raise the charge of other users.
func TestCheapContextsDoNotRaiseOtherCharges(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 16000)
	honest := w.telling(reading.ClientReport{})
	honest.contexts(1)
	liar := &client{w: w, process: w.process(4711, "liar")}
	*liar = *w.clientOf(liar.process, 0, 0)
	liar.word.told.Known = true
	liar.contexts(1)
	liar.must(63) // it allocates none of the bytes
	w.read(9, honest.figure(64), liar.figure(64))
	if row := honest.row(); row.Excess != 0 {
		t.Errorf("%+v", row)
	}
}

// TestManagedMemoryDoesNotLowerContextCost: managed memory is charged and may be in host memory. It does not make contexts look cheap.
func TestManagedMemoryDoesNotLowerContextCost(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 16000)
	x, y := w.telling(reading.ClientReport{Soft: true}), w.telling(reading.ClientReport{})
	x.contexts(1)
	y.contexts(1)
	x.must(1000)
	if w.read(9, x.figure(1010), y.figure(64)); y.row().Excess != 0 {
		t.Errorf("%+v", y.row())
	}
}

// TestReservationForgets: the cost of the next context is expected to be the largest of the last three programs.
func TestReservationForgets(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 16000)
	reserved := func() accounting.Bytes {
		c := w.client(0, 0)
		before := w.arb.Snapshot(w.now).Devices[0].Capacity
		c.contexts(1)
		after := w.arb.Snapshot(w.now).Devices[0].Capacity
		forget(w.arb, w.now, c.session)
		return before - after
	}
	for i, c := range []struct{ cost, want accounting.Bytes }{{70, 70}, {900, 900}, {60, 900}, {65, 900}, {50, 65}, {55, 65}, {40, 55}} {
		x := w.client(0, 0)
		x.contexts(1)
		w.read(2, x.figure(c.cost))
		forget(w.arb, w.now, x.session)
		if got := reserved(); got != c.want {
			t.Errorf("after program %d: %d are reserved, want %d", i, got, c.want)
		}
	}
}

// TestExpectedContextCostEnds: an expected cost ends at the second reading after it, whatever that shows.
func TestExpectedContextCostEnds(t *testing.T) {
	for name, c := range map[string]struct{ figure, left accounting.Bytes }{
		"shown": {70, 1530}, "nothing shown": {0, 1600}, "less shown": {20, 1580},
	} {
		t.Run(name, func(t *testing.T) {
			p := exact(unlimited())
			p.ContextReserve = size(50)
			w := newWorld(t, p, 1600)
			x := w.client(0, 0)
			x.contexts(1)
			if d := w.read(1, x.figure(c.figure)); d.Capacity != 1550 {
				t.Errorf("after one reading: %+v", d)
			}
			if d := w.read(1, x.figure(c.figure)); d.Capacity != c.left {
				t.Errorf("after the second: %+v", d)
			}
		})
	}
}

func TestADeviceThatNamesNoProcess(t *testing.T) {
	w := newWorld(t, exact(size(100)), 1600)
	x := w.telling(reading.ClientReport{})
	x.contexts(1)
	for range 3 {
		w.now = w.now.Add(time.Second)
		w.arb.Observe(w.now, arbiter.Usage{Device: 0, Unnamed: true})
	}
	if d := w.arb.Snapshot(w.now).Devices[0]; !d.Unnamed || d.Capacity != 1600 || x.row().Excess != 0 {
		t.Errorf("%+v, %+v", d, x.row())
	}
	if d := w.see(x.figure(10)); d.Unnamed {
		t.Errorf("%+v", d)
	}
}

// TestExpectedContextCostLastsDuringCall: a driver can take long to make a context, and readings go on. The expected cost counts until the
// library reports the end of the call, and a reading that began later shows the context.
func TestExpectedContextCostLastsDuringCall(t *testing.T) {
	w := newWorld(t, costly(300), 6000)
	x, other := w.telling(reading.ClientReport{}), w.client(0, 0)
	x.word.told.Making = 1
	x.context()
	if d := w.read(5, x.figure(100)); d.Capacity != 5700 {
		t.Errorf("five readings while it is being made: capacity %d", d.Capacity)
	}
	if o := other.alloc(5701); o.Reason != arbiter.ReasonReading {
		t.Errorf("others are granted what was promised: %+v", o)
	}
	o := w.arb.Ask(w.now, arbiter.Request{Lease: other.lease, What: arbiter.WantsBytes, Bytes: 5701, Read: true})
	if o.Waiting == 0 {
		t.Errorf("no reading comes, and it does not wait: %+v", o)
	}
	w.now = w.now.Add(time.Second)
	w.arb.Note(0)
	x.word.told.Making = 0 // while a reading is under way: that one may have seen half of it
	w.arb.Observe(w.now, arbiter.Usage{Device: 0, Processes: []arbiter.ProcessUsage{x.figure(200)}})
	if d := w.read(1, x.figure(250)); d.Capacity != 5700 {
		t.Errorf("one reading since: capacity %d", d.Capacity)
	}
	if d := w.read(1, x.figure(250)); d.Capacity != 5750 || d.Context != 250 {
		t.Errorf("two readings since: %+v", d)
	}
	w.served(o.Waiting)
}

// TestWaitingContextHasNoExpectedCost: a client that waits for a context is not making one yet. So the expected cost of its earlier context
// ends with the second reading, although the library reports a call that makes a context.
func TestWaitingContextHasNoExpectedCost(t *testing.T) {
	w := newWorld(t, costly(300), 6000)
	x := w.telling(reading.ClientReport{})
	x.context()
	other := w.client(0, 0)
	other.must(5700)
	x.word.told.Making = 1
	o := w.arb.Ask(w.now, arbiter.Request{Lease: x.lease, What: arbiter.WantsContexts, Count: 1, Read: true})
	if o.Waiting == 0 {
		t.Fatalf("%+v", o)
	}
	if d := w.read(2, x.figure(250), other.figure(5700)); d.Capacity != 5750 {
		t.Errorf("the one before is shown: capacity %d", d.Capacity)
	}
	other.free(5700)
	w.served(o.Waiting)
	if d := w.read(3, x.figure(250)); d.Capacity != 5500 {
		t.Errorf("the second is being made: capacity %d", d.Capacity)
	}
}

// TestFreedWhileTheDeviceIsReadIsNoExcess: while the device is read, a program frees memory, and a new limit recalls its credit. The
// reading may still show the freed memory, which must not be charged as excess.
func TestFreedWhileTheDeviceIsReadIsNoExcess(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 16000)
	x := w.telling(reading.ClientReport{})
	x.must(1000)
	x.free(300)
	w.read(3, x.figure(1000)) // 300 of the bytes are freed, or are excess
	w.arb.Note(0)
	if !x.word.fast(300) {
		t.Fatal("no credit")
	}
	x.free(300)
	if err := w.arb.SetUserLimits(w.now, 1000, "", rules.Change{Device: 0, Max: ptr(size(700))}); err != nil {
		t.Fatal(err)
	}
	w.arb.Observe(w.now, arbiter.Usage{Device: 0, Processes: []arbiter.ProcessUsage{x.figure(1000)}})
	if row := x.row(); row.Granted != 700 || row.Excess != 0 {
		t.Errorf("no excess is to be charged: %+v", row)
	}
}
