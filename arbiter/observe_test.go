package arbiter_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// Readings of a device show memory beside the grants: contexts, processes without a lease, and processes that have ended. The device can
// grant less by that memory until it is free again. cost_test.go tests what is charged to a process, and restore_test.go has more of
// restarts.

// see applies a reading of device 0, a second later.
func (w *world) see(processes ...arbiter.ProcessUsage) figures.DeviceState {
	w.now = w.now.Add(time.Second)
	w.arb.Note(0)
	w.arb.Observe(w.now, arbiter.Usage{Device: 0, Processes: processes})
	return w.arb.Snapshot(w.now).Devices[0]
}

func (c *client) figure(b accounting.Bytes) arbiter.ProcessUsage {
	return arbiter.ProcessUsage{PID: c.process.PID, StartTicks: c.process.StartTicks, Bytes: b, Command: c.process.Command}
}

func TestOverheadHasToLast(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 1000)
	x := w.client(0, 0)
	x.must(300)
	for i, c := range []struct{ figure, want accounting.Bytes }{
		{400, 0}, {400, 100}, {700, 100}, {400, 100}, {350, 50}, {350, 50}, {0, 0}, {350, 0}, {360, 50},
	} {
		d := w.see(x.figure(c.figure))
		if d.Overhead != c.want || d.Capacity != 1000-c.want || d.Unmanaged != 0 || x.row().Overhead != c.want {
			t.Errorf("reading %d of %d: overhead %d, capacity %d, want %d", i, c.figure, d.Overhead, d.Capacity, c.want)
		}
	}
	forget(w.arb, w.now, x.session)
	if d := w.arb.Snapshot(w.now).Devices[0]; d.Overhead != 0 || d.Capacity != 1000 {
		t.Errorf("it is gone: %+v", d)
	}
}

func TestFreeDuringAReadingIsNoOverhead(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 1000)
	x := w.client(0, 0)
	x.must(400)
	for range 3 { // each reading sees 400, and 100 of them are free when it comes back
		w.arb.Note(0)
		x.free(100)
		w.arb.Observe(w.now, arbiter.Usage{Device: 0, Processes: []arbiter.ProcessUsage{x.figure(400)}})
		if got := x.row().Overhead; got != 0 {
			t.Errorf("overhead of %d", got)
		}
		if !x.word.fast(100) {
			t.Fatal("the credit is gone")
		}
	}
}

func TestPeaksByTheFastPath(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 10000)
	job := w.job(t, arbiter.JobRequest{})
	x, y := w.client(job, 0), w.client(job, 0)
	x.must(500)
	y.must(200)
	x.free(500)
	w.arb.Snapshot(w.now)
	if !x.word.fast(450) {
		t.Fatal("no credit")
	}
	x.free(450)
	y.must(100)
	s := w.arb.Snapshot(w.now)
	if s.Leases[0].Peak != 500 || s.Leases[1].Peak != 300 || s.Devices[0].Peak != 700 || s.Jobs[0].Devices[0].Peak != 700 {
		t.Errorf("peaks: %d %d, device %d, job %d", s.Leases[0].Peak, s.Leases[1].Peak, s.Devices[0].Peak, s.Jobs[0].Devices[0].Peak)
	}
	z := w.client(0, 0)
	z.must(100)
	z.free(100)
	if !z.word.fast(60) || !z.word.fast(40) {
		t.Fatal("no credit")
	}
	z.must(50)
	z.free(150)
	w.arb.Tick(w.now)
	if s := w.arb.Snapshot(w.now); s.Leases[2].Peak != 150 || s.Jobs[1].Devices[0].Peak != 150 {
		t.Errorf("peak %d, its job's %d", s.Leases[2].Peak, s.Jobs[1].Devices[0].Peak)
	}
	one := w.client(0, 0)
	one.must(60)
	one.free(60)
	w.arb.Snapshot(w.now) // reads that no byte is in use
	one.must(30)          // asks the arbiter; the later changes are made in the credit word alone
	if !one.word.fast(60) {
		t.Fatal("no credit")
	}
	one.free(90)
	if s := w.arb.Snapshot(w.now); s.Leases[3].Peak != 90 || s.Jobs[2].Devices[0].Peak != 90 {
		t.Errorf("peak %d, its job's %d", s.Leases[3].Peak, s.Jobs[2].Devices[0].Peak)
	}
}

func TestC12UnmanagedCounts(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 1000)
	d := w.see(arbiter.ProcessUsage{PID: 7, Bytes: 300, Command: "blender"}, arbiter.ProcessUsage{PID: 8, Bytes: 100, Command: "X"})
	if d.Unmanaged != 400 || d.Capacity != 600 || len(d.UnmanagedBy) != 2 || d.UnmanagedBy[0].Command != "blender" {
		t.Errorf("%+v", d)
	}
	x := w.client(0, 0)
	x.must(600)
	if o := x.alloc(1); o.Granted || o.Reason != arbiter.ReasonDeviceFull || !strings.Contains(holdersIn(o), "blender[7]") {
		t.Errorf("%+v", o)
	}
	x.free(200)
	if d = w.see(x.figure(400), arbiter.ProcessUsage{PID: 7, Bytes: 500}); d.Granted != 500 || d.Capacity != 500 {
		t.Errorf("idle credit stays where the capacity fell below the sum: %+v", d)
	}
	if d = w.see(x.figure(400)); d.Unmanaged != 0 || d.Capacity != 1000 {
		t.Errorf("%+v", d)
	}
	another := x.figure(200)
	another.StartTicks++
	if d = w.see(another); d.Unmanaged != 200 {
		t.Errorf("a process that took over a PID is not the client: %+v", d)
	}
}

func TestDraining(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 1000)
	x, y := w.client(0, 0), w.client(0, 0)
	x.must(800)
	x.free(100)
	w.arb.EndSession(w.now, x.session)
	if s := w.arb.Snapshot(w.now); s.Leases[0].State != figures.StateDraining || s.Leases[0].Used != 700 || s.Processes[0].State != figures.StateDraining {
		t.Errorf("%+v", s.Leases[0])
	}
	if o := y.alloc(301); o.Granted || o.Remaining != 300 {
		t.Errorf("a dead process's memory was granted: %+v", o)
	}
	if o := x.alloc(1); o.Granted || o.Reason != arbiter.ReasonNoLease {
		t.Errorf("%+v", o)
	}
	w.arb.Gone(w.now, x.session, 0)
	w.arb.Gone(w.now, x.session, 0)
	y.must(1000)
	if s := w.arb.Snapshot(w.now); len(s.Leases) != 1 || len(s.Jobs) != 1 || s.Stats.ReclaimedLeases != 1 {
		t.Errorf("%+v", s)
	}
}

func TestReadingReclaims(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 1000)
	x := w.client(0, 0)
	x.must(800)
	began := w.now
	w.now = w.now.Add(time.Millisecond)
	w.arb.EndSession(w.now, x.session)
	w.arb.Observe(w.now, arbiter.Usage{Device: 0, Began: began})
	if n := len(w.arb.Snapshot(w.now).Leases); n != 1 {
		t.Error("reclaimed by a reading from before the death")
	}
	w.see()
	if n := len(w.arb.Snapshot(w.now).Leases); n != 0 {
		t.Error("the device does not list it, and it still drains")
	}
}

func TestKeptByAChild(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 1000)
	x := w.client(0, 0)
	x.must(800)
	w.arb.EndSession(w.now, x.session)
	figure := x.figure(850)
	figure.Keeper = "python3[4242]"
	w.now = w.now.Add(900 * time.Millisecond)
	w.arb.Observe(w.now, arbiter.Usage{Device: 0, Processes: []arbiter.ProcessUsage{figure}})
	w.arb.Tick(w.now)
	if d := w.arb.Snapshot(w.now).Devices[0]; d.Granted != 800 || d.Unmanaged != 0 {
		t.Errorf("before a second has passed: %+v", d)
	}
	w.arb.Events()
	w.now = w.now.Add(200 * time.Millisecond)
	w.arb.Tick(w.now)
	s := w.arb.Snapshot(w.now)
	d := s.Devices[0]
	if len(s.Leases) != 0 || d.Granted != 0 || d.Unmanaged != 850 || d.Capacity != 150 ||
		!strings.Contains(d.UnmanagedBy[0].Command, "python3[4242]") {
		t.Errorf("%+v", d)
	}
	if events := w.arb.Events(); kindsOf(events) != "kept" || !strings.Contains(events[0].Text, "python3[4242]") {
		t.Errorf("%+v", events)
	}
	if d = w.see(figure); d.Unmanaged != 850 {
		t.Errorf("the next reading: %+v", d)
	}
	if d = w.see(); d.Capacity != 1000 {
		t.Errorf("the child is gone: %+v", d)
	}
}

func TestSessionEndsAndTheProcessLivesOn(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 1000)
	x := w.client(0, 0)
	x.must(300)
	w.arb.EndSession(w.now, x.session) // exec
	y := w.clientOf(x.process, 0, 0)
	y.must(200)
	w.see(x.figure(500))
	if d := w.see(x.figure(500)); d.Overhead != 0 || d.Granted != 500 {
		t.Errorf("what drains is not the successor's overhead: %+v", d)
	}
	w.arb.Tick(w.now)
	if s := w.arb.Snapshot(w.now); len(s.Leases) != 1 || s.Devices[0].Unmanaged != 0 || s.Devices[0].Granted != 200 {
		t.Errorf("%+v", s.Devices[0])
	}
}

func TestInvalidWordIsChargedToItsOwner(t *testing.T) {
	w := newWorld(t, exact(size(500)), 1000)
	liar, other := w.client(0, 0), w.client(0, 0)
	liar.must(400)
	w.see(liar.figure(410))
	w.see(liar.figure(410))
	liar.word.free(1 << 40)
	if row := liar.row(); row.Used != 400 || row.Credit != 0 || row.Overhead != 10 {
		t.Errorf("%+v", row)
	}
	other.must(500)
	if liar.word.granted != 400 {
		t.Errorf("recalled from a word that lies: %d", liar.word.granted)
	}
	w.see(liar.figure(610), other.figure(500))
	d := w.see(liar.figure(610), other.figure(500))
	row := liar.row()
	if row.State != figures.StateOver || row.Overhead != 210 || d.Overhead != 10 || d.Committed != 1100 {
		t.Errorf("200 bytes that nothing explains: %+v, %+v", row, d)
	}
	if o := liar.alloc(1); o.Granted || o.Reason != arbiter.ReasonOverBudget {
		t.Errorf("%+v", o)
	}
	if kinds := kindsOf(w.arb.Events()); strings.Count(kinds, "clamped") != 1 || strings.Count(kinds, "excess") != 1 {
		t.Errorf("events: %s", kinds)
	}
	if got := other.row(); got.Used != 500 || got.State != figures.StateRunning {
		t.Errorf("somebody else's row: %+v", got)
	}
}

func TestChargeOverhead(t *testing.T) {
	p := exact(size(500))
	p.ChargeOverhead = true
	w := newWorld(t, p, 1000)
	x := w.client(0, 0)
	x.must(300)
	w.see(x.figure(400))
	if d := w.see(x.figure(400)); d.Capacity != 1000 || d.Committed != 400 || d.Overhead != 0 {
		t.Errorf("%+v", d)
	}
	if o := x.alloc(101); o.Granted || o.Remaining != 100 {
		t.Errorf("%+v", o)
	}
	x.must(100)
}

// TestLostOverhead: a device that comes back has no overhead of contexts that were lost with it.
func TestLostOverhead(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 1000)
	x := w.client(0, 0)
	x.contexts(1)
	for range 2 {
		w.see(x.figure(200))
	}
	if d := w.see(x.figure(200)); d.Overhead != 200 || d.Capacity != 800 {
		t.Fatalf("the context counts for %+v", d)
	}
	w.arb.LoseDevice(w.now, 0)
	w.arb.AddDevice(w.now, rules.Device{Index: 0, Total: 1000})
	if d := w.arb.Snapshot(w.now).Devices[0]; d.Overhead != 0 || d.Capacity != 1000 {
		t.Errorf("the device that is there again: %+v", d)
	}
	w = newWorld(t, costly(50), 1000) // without a context in a reading, nothing of its expected cost counts
	w.client(0, 0).context()
	w.arb.LoseDevice(w.now, 0)
	w.arb.AddDevice(w.now, rules.Device{Index: 0, Total: 1000})
	if d := w.arb.Snapshot(w.now).Devices[0]; d.Overhead != 0 || d.Capacity != 1000 {
		t.Errorf("a context that was never seen: %+v", d)
	}
}

func TestRestore(t *testing.T) {
	w := newWorld(t, exact(size(1000)), 8*gib, gib)
	if err := w.arb.RestoreJob(w.now, arbiter.RestoredJob{ID: 41, Request: arbiter.JobRequest{Process: w.process(1000, "g"), Max: ptr(size(600))}}); err != nil {
		t.Fatal(err)
	}
	if err := w.arb.RestoreJob(w.now, arbiter.RestoredJob{ID: 41}); !errors.Is(err, arbiter.ErrExists) {
		t.Error(err)
	}
	opened := w.now.Add(-time.Hour)
	proc := w.process(1000, "python3")
	x := w.restored(arbiter.SessionRequest{Process: proc, Job: 41},
		arbiter.RestoredLease{Device: 0, Granted: 800, Streams: 300, Contexts: 1, Peak: 900, Opened: opened},
		arbiter.RestoredLease{Device: 1, Granted: 100, Unverified: true})[0]
	x.word.begin(800, 50)
	want := figures.LeaseState{Used: 750, Granted: 800, Credit: 50, State: figures.StateOver, Peak: 900, Streams: 300,
		StreamsMax: 256, Contexts: 1, Slot: true, AgeSeconds: 3600, Job: 41, Budget: 600}
	got := x.row()
	got.PID, got.UID, got.User, got.Command = 0, 0, "", ""
	got.ID, want.Opened = 0, opened
	want.BudgetBy, want.StreamsBy, want.Cgroup = "gpuarb run --memory", "the defaults", "/user.slice"
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	w.arb.Refresh(x.lease)
	if !x.word.closed() || x.word.limit != 600 {
		t.Errorf("closed %v, limit %d", x.word.closed(), x.word.limit)
	}
	w.arb.Tick(w.now)
	if row := x.row(); !x.word.closed() || row.Granted != 750 {
		t.Errorf("after the tick: closed %v, %+v", x.word.closed(), row)
	}
	if o := x.streams(1); o.Granted || o.Current != 300 {
		t.Errorf("%+v", o)
	}
	w.arb.Observe(w.now, arbiter.Usage{Device: 1, Processes: []arbiter.ProcessUsage{x.figure(99)}})
	if s := w.arb.Snapshot(w.now).Leases[1]; s.State != figures.StateUnverified {
		t.Errorf("%+v", s)
	}
	w.arb.Observe(w.now, arbiter.Usage{Device: 1, Processes: []arbiter.ProcessUsage{x.figure(150)}})
	if s := w.arb.Snapshot(w.now).Leases[1]; s.State != figures.StateRunning {
		t.Errorf("%+v", s)
	}
	if next := w.job(t, arbiter.JobRequest{}); next != 42 {
		t.Errorf("the next job is %d", next)
	}
	if _, err := w.arb.RestoreSession(w.now, arbiter.SessionRequest{Job: 99}); !errors.Is(err, arbiter.ErrNoJob) {
		t.Error(err)
	}
	if _, err := w.arb.RestoreLease(w.now, x.session, arbiter.RestoredLease{Device: 9}, &word{of: w.words, gone: true}); !errors.Is(err, arbiter.ErrNoDevice) {
		t.Error(err)
	}
}

func TestRestoreByAClientsWord(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 1000)
	s, err := w.arb.OpenSession(w.now, arbiter.SessionRequest{Process: w.process(1000, "x")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.arb.RestoreLease(w.now, s.ID, arbiter.RestoredLease{Granted: accounting.Max, Unverified: true}, &word{of: w.words, gone: true}); err != nil {
		t.Fatal(err)
	}
	if row := w.arb.Snapshot(w.now).Leases[0]; row.Granted != 1000 || row.State != figures.StateUnverified {
		t.Errorf("%+v", row)
	}
	if s, err = w.arb.OpenSession(w.now, arbiter.SessionRequest{Process: w.process(1000, "y"), StreamReserve: ptr(accounting.Bytes(3))}); err != nil {
		t.Fatal(err)
	}
	if info, err := w.arb.RestoreLease(w.now, s.ID, arbiter.RestoredLease{Streams: 9, Unverified: true}, &word{of: w.words, gone: true}); info.Streams != 0 || err != nil {
		t.Errorf("%d streams on a full device, %v", info.Streams, err)
	}
	if _, err := w.arb.RestoreLease(w.now, s.ID, arbiter.RestoredLease{}, &word{of: w.words, gone: true}); !errors.Is(err, arbiter.ErrExists) {
		t.Error(err)
	}
	if _, err := w.arb.RestoreLease(w.now, 99, arbiter.RestoredLease{}, &word{of: w.words, gone: true}); !errors.Is(err, arbiter.ErrNoSession) {
		t.Error(err)
	}
}

// TestALostLeaseStaysClosed: a client that allocates on a lost device asks, and gets the reason, also from the next daemon.
func TestALostLeaseStaysClosed(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 1000)
	c := w.restored(arbiter.SessionRequest{Process: w.process(1000, "x")}, arbiter.RestoredLease{Lost: true})[0]
	if o := c.alloc(1); !c.word.closed() || o.Reason != arbiter.ReasonDeviceLost {
		t.Errorf("closed %v, %+v", c.word.closed(), o)
	}
}

func TestJobEndsWithItsLastProcess(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 1000)
	job := w.job(t, arbiter.JobRequest{Min: ptr(size(400))})
	x := w.client(job, 0)
	x.must(100)
	w.arb.CloseJob(w.now, job)
	if got := w.arb.Snapshot(w.now).Devices[0].Committed; got != 400 {
		t.Errorf("its last process lives, and %d are reserved", got)
	}
	w.client(job, 0)
	w.arb.EndSession(w.now, x.session)
	last := w.arb.Snapshot(w.now).Processes[1]
	w.arb.EndSession(w.now, arbiter.SessionID(x.session+1))
	if s := w.arb.Snapshot(w.now); s.Devices[0].Committed != 100 || len(s.Jobs) != 1 {
		t.Errorf("%d: only what drains is left: %+v", last.PID, s.Devices[0])
	}
	w.arb.Gone(w.now, x.session, 0)
	w.arb.Gone(w.now, x.session+1, 0)
	if _, err := w.arb.OpenSession(w.now, arbiter.SessionRequest{Job: job}); !errors.Is(err, arbiter.ErrNoJob) {
		t.Error(err)
	}
}
