package arbiter_test

import (
	"errors"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// Sessions that wait for their start, that an earlier daemon had, or whose device is lost, hold only what they were granted, and leave
// nothing behind. TestRestore in observe_test.go tests the restored figures, and queue_restart_test.go restarts at random.

// TestWaitingSessionHasNoLease: no call gives a lease to a session that waits for its memory.min. Nothing of the session is left, however
// it leaves the queue.
func TestWaitingSessionHasNoLease(t *testing.T) {
	p := waiting()
	p.Defaults.WaitTimeout = time.Minute
	for name, leaves := range map[string]func(*world, arbiter.SessionInfo){
		"its process ends":   func(w *world, s arbiter.SessionInfo) { w.arb.EndSession(w.now, s.ID) },
		"it is cancelled":    func(w *world, s arbiter.SessionInfo) { w.arb.Cancel(w.now, s.Waiting, arbiter.ReasonCancelled) },
		"its time is over":   func(w *world, _ arbiter.SessionInfo) { w.now = w.now.Add(2 * time.Minute); w.arb.Tick(w.now) },
		"its device is lost": func(w *world, _ arbiter.SessionInfo) { w.arb.LoseDevice(w.now, 0) },
	} {
		w := newWorld(t, p, 1000)
		job := w.job(t, arbiter.JobRequest{Min: ptr(size(600)), PerProcess: true})
		w.client(job, 0)
		s, err := w.arb.OpenSession(w.now, arbiter.SessionRequest{Process: w.process(1000, "second"), Job: job})
		if err != nil || s.Waiting == 0 {
			t.Fatalf("%s: %+v %v", name, s, err)
		}
		_, restored := w.arb.RestoreLease(w.now, s.ID, arbiter.RestoredLease{Unverified: true}, w.words.add(0, 0))
		_, attached := w.arb.Attach(w.now, s.ID, 0, w.words.add(0, 0))
		if !errors.Is(restored, arbiter.ErrNoSession) || !errors.Is(attached, arbiter.ErrNoSession) {
			t.Errorf("%s: a session that waits gets a lease: %v, %v", name, restored, attached)
		}
		leaves(w, s)
		if snapshot := w.arb.Snapshot(w.now); len(snapshot.Queue) > 0 || len(snapshot.Processes) != 1 {
			t.Errorf("%s: left: %+v", name, snapshot)
		}
	}
}

// TestReservedWhenThereIsRoom: a session that was restored without its reservation gets it when there is room that no waiting request comes
// first for.
func TestReservedWhenThereIsRoom(t *testing.T) {
	p := waiting()
	p.Rules = []rules.Rule{{Match: rules.Match{Exe: "server"}, Scope: ptr(rules.ScopeProcess), Min: ptr(size(600))},
		{Match: rules.Match{User: "eve"}, Scope: ptr(rules.ScopeUser), Min: ptr(size(500))}}
	for _, one := range []struct {
		process rules.Process
		least   accounting.Bytes
	}{{rules.Process{UID: bob, User: "bob", Exe: "/usr/bin/server"}, 600}, {rules.Process{UID: eve, User: "eve", Exe: "/usr/bin/x"}, 500}} {
		w := newWorld(t, p, 1000)
		filler := w.client(0, 0)
		filler.must(700)
		one.process.PID = 7
		s, err := w.arb.RestoreSession(w.now, arbiter.SessionRequest{Process: one.process, Unreserved: true})
		if err != nil {
			t.Fatal(err)
		}
		committed := func(want accounting.Bytes) {
			t.Helper()
			if d := w.arb.Snapshot(w.now).Devices[0]; d.Committed != want {
				t.Errorf("%d bytes are held or reserved, want %d", d.Committed, want)
			}
		}
		if w.arb.Reserve(w.now, s) {
			t.Error("more is reserved than there is room for")
		}
		w.arb.SetPolicy(w.now, p) // applies all limits again
		committed(700)
		waiter := w.client(0, 0)
		w.decided()
		ticket := waiter.wait(800)
		filler.free(200) // now there is room for the reservation, but not for the waiter
		if w.arb.Reserve(w.now, s) {
			t.Error("what a waiting request is due was reserved")
		}
		filler.free(500)
		w.served(ticket)
		committed(800)
		forget(w.arb, w.now, waiter.session)
		for range 2 { // the second call finds that the first one has reserved
			if !w.arb.Reserve(w.now, s) {
				t.Error("there is room, and nothing is reserved")
			}
		}
		committed(one.least)
		w.arb.EndSession(w.now, s)
		committed(0)
	}
}

// TestReportLostWhileDeviceIsLost: a device with hundreds of leases is lost. Some of its leases drain, and one has freed bytes whose report
// was lost. All leases and waiting requests must end within the following ticks.
func TestReportLostWhileDeviceIsLost(t *testing.T) {
	const living, dead = 150, 300
	w := newWorld(t, waiting(), 10000)
	idle, filler, waiter := w.client(0, 0), w.client(0, 0), w.client(0, 0)
	idle.must(1000)
	var ended []*client
	for i := range living + dead {
		c := w.client(0, 0)
		if c.must(1); i >= living {
			ended = append(ended, c)
		}
	}
	filler.must(10000 - 1000 - living - dead)
	for range 60 {
		waiter.wait(5000)
	}
	for _, c := range ended {
		w.arb.EndSession(w.now, c.session)
	}
	w.arb.Tick(w.now)
	idle.word.free(500) // its report is lost
	w.now = w.now.Add(2 * time.Second)
	w.arb.LoseDevice(w.now, 0)
	for range 1000 {
		w.arb.Tick(w.now)
	}
	s := w.arb.Snapshot(w.now)
	if len(s.Queue) > 0 || s.Devices[0].Granted > 0 || len(s.Leases) != living+3 {
		t.Errorf("left: %d requests, %d leases, %+v", len(s.Queue), len(s.Leases), s.Devices[0])
	}
}

// TestRestoredOnLostDevice: amounts that a client or a record reports for a lost device do not count, even after the device is back.
func TestRestoredOnLostDevice(t *testing.T) {
	w := newWorld(t, waiting(), 1000)
	w.arb.LoseDevice(w.now, 0)
	w.restored(arbiter.SessionRequest{Process: w.process(bob, "x")}, arbiter.RestoredLease{Granted: 100, Streams: 3, Contexts: 1, Unverified: true})
	w.arb.AddDevice(w.now, rules.Device{Vendor: "nvidia", Total: 1000})
	s := w.arb.Snapshot(w.now)
	if l, d := s.Leases[0], s.Devices[0]; l.State != figures.StateLost || l.Granted+accounting.Bytes(l.Streams+l.Contexts) != 0 || d.Committed+accounting.Bytes(d.Streams+d.SlotsCurrent) != 0 {
		t.Errorf("a lease that was restored there: %+v of %+v", l, d)
	}
}

// TestStartsBesideLostDevice: a program whose memory.min is reserved on each device starts, although one device is lost and a device that
// its job may not use is full.
func TestStartsBesideLostDevice(t *testing.T) {
	p := waiting()
	p.Defaults.Scope, p.Defaults.Min = rules.ScopeProcess, size(100)
	w := newWorld(t, p, 1000, 1000, 1000)
	w.arb.LoseDevice(w.now, 1)
	w.client(0, 0).must(950)
	job := w.job(t, arbiter.JobRequest{Devices: []int{2}})
	if s, err := w.arb.OpenSession(w.now, arbiter.SessionRequest{Process: w.process(bob, "x"), Job: job}); err != nil || s.Waiting != 0 {
		t.Errorf("a program that begins: %+v, %v", s, err)
	}
}
