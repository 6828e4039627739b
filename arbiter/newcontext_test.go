package arbiter_test

import (
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/reading"
)

// A context counts from the moment in which it is made, at what is assumed until a reading shows it. A request that lacks room only because
// of that is decided after a reading. The expected figures are added up by hand. cost_test.go has the costs that readings show.

// guessing returns a world with a device of 16,000 bytes, on which a context counts as 500 bytes until one was measured.
func guessing(t *testing.T) *world {
	p := exact(unlimited())
	p.ContextGuess = size(500)
	return newWorld(t, p, 16000)
}

// early takes an early reading of device 0, a millisecond after the last event.
func (w *world) early(processes ...arbiter.ProcessUsage) {
	w.now = w.now.Add(time.Millisecond)
	w.arb.Note(0)
	w.arb.Observe(w.now, arbiter.Usage{Device: 0, Early: true, Began: w.now, Processes: processes})
}

// TestAssumedContexts: the contexts of two processes count as soon as they are granted. A request that fits only without them is decided
// when a reading has shown both. A larger one is refused at once, and a smaller one is granted.
func TestAssumedContexts(t *testing.T) {
	w := guessing(t)
	x, y := w.telling(reading.ClientReport{}), w.telling(reading.ClientReport{})
	x.context()
	y.context()
	if d := w.arb.Snapshot(w.now).Devices[0]; d.Capacity != 15000 || !w.arb.Unread(0, start.Add(-time.Second)) {
		t.Fatalf("two contexts are assumed: %+v", d)
	}
	if o := x.alloc(16001); o.Reason != arbiter.ReasonTooLarge {
		t.Errorf("more than the device has: %+v", o)
	}
	if o := x.alloc(15001); o.Reason != arbiter.ReasonReading || o.Waiting != 0 {
		t.Errorf("the readings decide: %+v", o)
	}
	y.must(5000)
	if o := x.alloc(11001); o.Reason != arbiter.ReasonDeviceFull {
		t.Errorf("no reading could help: %+v", o)
	}
	w.early(x.figure(100), y.figure(5120))
	if d := w.arb.Snapshot(w.now).Devices[0]; d.Capacity != 15400 || d.Context != 100 {
		t.Errorf("of y, whose allocation may be in flight, the assumption stays: %+v", d)
	}
	w.now = w.now.Add(300 * time.Millisecond)
	w.early(x.figure(100), y.figure(5120))
	if d := w.arb.Snapshot(w.now).Devices[0]; d.Capacity != 15780 || d.Context != 120 || w.arb.Unread(0, start.Add(-time.Second)) {
		t.Errorf("both are shown: %+v", d)
	}
	if o := x.alloc(10781); o.Reason != arbiter.ReasonDeviceFull || o.Remaining != 10780 {
		t.Errorf("%+v", o)
	}
	x.must(10780)
}

// TestAnAssumptionStaysWhileAContextIsMade: no reading that begins while the driver makes a context counts.
func TestAnAssumptionStaysWhileAContextIsMade(t *testing.T) {
	w := guessing(t)
	x := w.telling(reading.ClientReport{})
	x.word.told.Making = 1
	x.context()
	w.early(x.figure(20))
	if d := w.arb.Snapshot(w.now).Devices[0]; d.Capacity != 15500 {
		t.Errorf("%+v", d)
	}
	x.word.told.Making = 0
	w.early(x.figure(100))
	if d := w.arb.Snapshot(w.now).Devices[0]; d.Capacity != 15900 {
		t.Errorf("%+v", d)
	}
}

// TestAContextThatNobodyKnows: on a full device a first context is granted, because only the driver knows whether it fits. A second one waits
// for the reading that shows the cost of the first.
func TestAContextThatNobodyKnows(t *testing.T) {
	w := guessing(t)
	x, y := w.telling(reading.ClientReport{}), w.telling(reading.ClientReport{})
	x.must(15900)
	x.context()
	if o := y.contexts(1); o.Reason != arbiter.ReasonReading {
		t.Errorf("%+v", o)
	}
	w.now = w.now.Add(300 * time.Millisecond)
	w.early(x.figure(16000))
	w.now = w.now.Add(300 * time.Millisecond)
	w.early(x.figure(16000))
	if o := y.contexts(1); o.Reason != arbiter.ReasonDeviceFull || o.Requested != 100 {
		t.Errorf("%+v", o)
	}
}

// TestAssumedContextsAndReservations: an assumption takes nothing from a reservation.
func TestAssumedContextsAndReservations(t *testing.T) {
	w := guessing(t)
	id, ticket := w.reserve(15000)
	if ticket != 0 {
		t.Fatal("it waits")
	}
	job := w.client(id, 0)
	job.context()
	w.client(0, 0).context()
	if o := w.client(0, 0).contexts(1); o.Reason != arbiter.ReasonReading {
		t.Errorf("there is no room for a third: %+v", o)
	}
	job.must(15000)
	if o := job.alloc(1); o.Reason != arbiter.ReasonReading {
		t.Errorf("%+v", o)
	}
	if d := w.arb.Snapshot(w.now).Devices[0]; d.Overhead != 1000 || d.Committed != accounting.Bytes(15000) {
		t.Errorf("%+v", d)
	}
}

// TestRequestsThatAwaitAReadingMakeNothing: a second context lacks room only because of what is assumed for the first. Its request does not
// count as a context that the driver is making: a reading decides it. When it is granted, the driver is making it.
func TestRequestsThatAwaitAReadingMakeNothing(t *testing.T) {
	w := guessing(t)
	x, y := w.telling(reading.ClientReport{}), w.telling(reading.ClientReport{})
	y.must(15200)
	x.context()
	x.word.told.Making = 1
	second := arbiter.Request{Lease: x.lease, What: arbiter.WantsContexts, Count: 1}
	for range 2 {
		if o := w.arb.Ask(w.now, second); o.Reason != arbiter.ReasonReading {
			t.Fatalf("the readings decide: %+v", o)
		}
		second.Asked = true
	}
	w.early(x.figure(100), y.figure(15200))
	if o := w.arb.Ask(w.now, second); !o.Granted {
		t.Fatalf("the reading shows room: %+v", o)
	}
	w.early(x.figure(120), y.figure(15200))
	if d := w.arb.Snapshot(w.now).Devices[0]; d.Capacity != 15800 {
		t.Errorf("the second is being made: %+v", d)
	}
}
