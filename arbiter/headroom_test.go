package arbiter_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// A job can use its reserved memory to the last byte, because room for one context is reserved beside it. The expected figures are added up
// by hand. cost_test.go and slots_test.go test contexts of jobs without a reservation.

// costly returns a policy under which a context has a known cost.
func costly(context accounting.Bytes) rules.Policy {
	p := waiting()
	p.ContextReserve = size(context)
	return p
}

// reserve asks for a job that reserves memory; ticket 0: the job began.
func (w *world) reserve(least accounting.Bytes) (arbiter.JobID, arbiter.TicketID) {
	w.t.Helper()
	info, err := w.arb.OpenJob(w.now, arbiter.JobRequest{Process: w.process(1000, "gpuarb"), Min: ptr(size(least)), Wait: true})
	if err != nil {
		w.t.Fatal(err)
	}
	return info.ID, info.Waiting
}

// context makes a context that neither waits nor is refused.
func (c *client) context() {
	c.w.t.Helper()
	if o := c.contexts(1); !o.Granted {
		c.w.t.Fatalf("no context: %+v", o)
	}
}

// TestAReservationHasRoomForItsContext: eight jobs reserve a quarter of the device each. As many begin as have room for their contexts too,
// and each can use its reservation to the byte.
func TestAReservationHasRoomForItsContext(t *testing.T) {
	w := newWorld(t, costly(300), 8000)
	var begun []arbiter.JobID
	var waits []arbiter.TicketID
	for range 8 {
		if id, ticket := w.reserve(2000); ticket == 0 {
			begun = append(begun, id)
		} else {
			waits = append(waits, ticket)
		}
	}
	if len(begun) != 3 {
		t.Fatalf("%d of them begin at once, and three have room", len(begun))
	}
	if d := w.arb.Snapshot(w.now).Devices[0]; d.Capacity != 7100 || d.Committed != 6000 || d.Overhead != 900 || d.Context != 300 {
		t.Errorf("%+v", d)
	}
	var clients []*client
	for _, id := range begun {
		c := w.client(id, 0)
		c.context()
		c.must(2000)
		clients = append(clients, c)
	}
	if d := w.arb.Snapshot(w.now).Devices[0]; d.Capacity != 7100 || d.Committed != 6000 || d.Overhead != 900 {
		t.Errorf("what was kept for the contexts is theirs: %+v", d)
	}
	if o := clients[0].contexts(1); o.Waiting != 0 || !o.Granted {
		t.Errorf("there is room for one more: %+v", o)
	}
	forget(w.arb, w.now, clients[0].session)
	w.arb.CloseJob(w.now, begun[0])
	w.served(waits[0])
	if kinds := kindsOf(w.arb.Events()); strings.Contains(kinds, "deadlock") {
		t.Errorf("events: %s", kinds)
	}
}

// TestHeadroomIsThereForOneAfterTheOther: programs that run one after another in a job with all of the device can each make a context, even
// while the device still frees the memory of the one before.
func TestHeadroomIsThereForOneAfterTheOther(t *testing.T) {
	w := newWorld(t, costly(60), 1000)
	id, _ := w.reserve(940)
	for range 3 {
		c := w.client(id, 0)
		c.context()
		c.must(300)
		w.read(3, c.figure(360))
		w.arb.EndSession(w.now, c.session)
		w.client(id, 0).context()
		w.arb.Gone(w.now, c.session, 0)
		for _, p := range w.arb.Snapshot(w.now).Processes {
			if p.PID != c.process.PID {
				forget(w.arb, w.now, arbiter.SessionID(c.session+1))
			}
		}
		if d := w.arb.Snapshot(w.now).Devices[0]; d.Capacity != 940 || d.Overhead != 60 {
			t.Fatalf("%+v", d)
		}
	}
}

// TestHeadroomIsAssumedUntilItIsKnown: if the cost of contexts is unknown, reservations have estimated headroom, which a measurement
// corrects.
func TestHeadroomIsAssumedUntilItIsKnown(t *testing.T) {
	p := waiting()
	p.ContextGuess = size(500)
	w := newWorld(t, p, 16000)
	id, _ := w.reserve(7000)
	if d := w.arb.Snapshot(w.now).Devices[0]; d.Capacity != 15500 || d.Context != 500 {
		t.Fatalf("%+v", d)
	}
	c := w.client(id, 0)
	c.context()
	if d := w.read(3, c.figure(120)); d.Capacity != 15880 || d.Context != 120 || d.Overhead != 120 {
		t.Errorf("measured: %+v", d)
	}
	_, ticket := w.reserve(8760)
	if ticket != 0 {
		t.Errorf("there is room for it and for its context: %+v", w.arb.Snapshot(w.now).Devices[0])
	}
	if _, ticket = w.reserve(1); ticket == 0 {
		t.Errorf("there is no room left for a context: %+v", w.arb.Snapshot(w.now).Devices[0])
	}
}

// TestChargedContextsHaveNoHeadroom: with charge_overhead, contexts are charged to the reservation.
func TestChargedContextsHaveNoHeadroom(t *testing.T) {
	p := costly(50)
	p.ChargeOverhead = true
	w := newWorld(t, p, 1000)
	if _, ticket := w.reserve(1000); ticket != 0 {
		t.Error("it waits")
	}
	if d := w.arb.Snapshot(w.now).Devices[0]; d.Capacity != 1000 || d.Context != 0 {
		t.Errorf("%+v", d)
	}
}

// TestHeadroomEndsWithItsReservation: a reservation and its headroom end together and are restored together.
func TestHeadroomEndsWithItsReservation(t *testing.T) {
	w := newWorld(t, costly(50), 1000)
	capacity := func() accounting.Bytes { return w.arb.Snapshot(w.now).Devices[0].Capacity }
	id, _ := w.reserve(400)
	set := func(least accounting.Bytes) error {
		return w.arb.SetJobLimits(w.now, id, rules.Change{Device: 0, Min: ptr(size(least)), Privileged: true})
	}
	for _, step := range []struct{ least, capacity accounting.Bytes }{{0, 1000}, {300, 950}, {950, 950}, {0, 1000}} {
		if err := set(step.least); err != nil || capacity() != step.capacity {
			t.Errorf("memory.min of %d: %v, capacity %d", step.least, err, capacity())
		}
	}
	var refused *arbiter.Result
	if err := set(960); !errors.As(err, &refused) || refused.Remaining != 950 || capacity() != 1000 {
		t.Errorf("%v, capacity %d", err, capacity())
	}
	if err := set(100); err != nil || capacity() != 950 {
		t.Errorf("%v, capacity %d", err, capacity())
	}
	w.arb.ReleaseJob(w.now, id)
	if capacity() != 1000 {
		t.Errorf("released: capacity %d", capacity())
	}
}

// TestRefusedChangeLeavesHeadroom: a refused change restores the headroom that it had removed before it reached a limit without room, even
// if the cost of a context has changed.
func TestRefusedChangeLeavesHeadroom(t *testing.T) {
	p := waiting()
	p.ContextGuess = size(500)
	w := newWorld(t, p, 16000)
	most := accounting.Size{Max: true}
	info, err := w.arb.OpenJob(w.now, arbiter.JobRequest{Process: w.process(1000, "gpuarb"), Min: ptr(size(500)), Max: ptr(size(1000))})
	if err != nil {
		t.Fatal(err)
	}
	c := w.client(info.ID, 0)
	if err := w.arb.SetProcessLimits(w.now, rules.Change{Device: 0, Min: &most, Privileged: true}, c.session); err != nil {
		t.Fatal(err)
	}
	c.context()
	before := w.read(3, c.figure(120))
	if before.Context != 120 {
		t.Fatalf("a context costs %+v", before)
	}
	w.client(0, 0).must(8000)
	before = w.arb.Snapshot(w.now).Devices[0]
	var refused *arbiter.Result
	err = w.arb.SetJobLimits(w.now, info.ID, rules.Change{Device: 0, Min: ptr(size(0)), Max: ptr(size(15000)), Privileged: true})
	if !errors.As(err, &refused) {
		t.Fatalf("it is not refused: %v", err)
	}
	if after := w.arb.Snapshot(w.now).Devices[0]; after.Capacity != before.Capacity || after.Committed != before.Committed {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

// TestReservationsThatCannotBe: a job starts only if its devices can have its reservation.
func TestReservationsThatCannotBe(t *testing.T) {
	for name, c := range map[string]struct {
		request arbiter.JobRequest
		devices []int
		refused string
	}{
		"fits both":       {arbiter.JobRequest{Min: ptr(size(3000))}, nil, ""},
		"fits one":        {arbiter.JobRequest{Min: ptr(size(7000))}, []int{0}, ""},
		"fits the other":  {arbiter.JobRequest{Min: ptr(size(7000)), Devices: []int{1}}, nil, "memory.min of 6.8 KiB on GPU 1 could never be used in full: 3.7 KiB is the most"},
		"fits one of two": {arbiter.JobRequest{Min: ptr(size(7000)), Devices: []int{0, 1}}, nil, "GPU 1 could never"},
		"fits none":       {arbiter.JobRequest{Min: ptr(size(8000))}, nil, "memory.min of 7.8 KiB on GPU 0 could never be used in full: 7.6 KiB is the most that can be reserved of its 7.8 KiB, as a program needs a context there too, which takes 200 bytes"},
		"any":             {arbiter.JobRequest{Min: ptr(size(7000)), Any: true, Devices: []int{1, 0}}, []int{0}, ""},
		"any, and none":   {arbiter.JobRequest{Min: ptr(size(7900)), Any: true}, nil, "7.6 KiB is the most"},
		"each process's":  {arbiter.JobRequest{Min: ptr(size(7000)), PerProcess: true}, []int{0}, ""},
		"all there is":    {arbiter.JobRequest{Min: ptr(unlimited())}, nil, ""},
		"a share":         {arbiter.JobRequest{Min: ptr(accounting.Size{PerMille: 900})}, nil, ""},
		"a large share":   {arbiter.JobRequest{Min: ptr(accounting.Size{PerMille: 990})}, nil, "7.6 KiB is the most"},
		"beyond a budget": {arbiter.JobRequest{Min: ptr(size(3000)), Max: ptr(accounting.Size{PerMille: 500})}, []int{0}, ""},
		"beyond them all": {arbiter.JobRequest{Min: ptr(size(5000)), Max: ptr(accounting.Size{PerMille: 500})}, nil, "is more than the memory.max"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, costly(200), 8000, 4000)
			c.request.Process = w.process(1000, "gpuarb")
			info, err := w.arb.OpenJob(w.now, c.request)
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Fatalf("%v, want %s", err, c.refused)
				}
				return
			}
			if err != nil || info.Waiting != 0 || len(info.Devices) != len(c.devices) || len(c.devices) > 0 && info.Devices[0] != c.devices[0] {
				t.Fatalf("%+v, %v", info, err)
			}
		})
	}
}

// TestReservationsOfRules: a rule reserves nothing on a device that is too small, and at most what can be reserved.
func TestReservationsOfRules(t *testing.T) {
	for name, c := range map[string]struct {
		min       accounting.Size
		committed [2]accounting.Bytes
	}{
		"fits":         {size(3000), [2]accounting.Bytes{3000, 3000}},
		"fits one":     {size(7000), [2]accounting.Bytes{7000, 0}},
		"all there is": {unlimited(), [2]accounting.Bytes{7800, 3800}},
		"nearly all":   {size(8000), [2]accounting.Bytes{7800, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			p := costly(200)
			p.Defaults.Min = c.min
			w := newWorld(t, p, 8000, 4000)
			x := w.client(0, 0)
			x.context()
			s := w.arb.Snapshot(w.now)
			if got := [2]accounting.Bytes{s.Devices[0].Committed, s.Devices[1].Committed}; got != c.committed {
				t.Errorf("%v are reserved, want %v", got, c.committed)
			}
		})
	}
}

// TestNoWaitJobTakesSlotsAtStart: a job with NoWait takes its slots at its start on all its devices, so that its programs are not
// refused one later.
func TestNoWaitJobTakesSlotsAtStart(t *testing.T) {
	w := newWorld(t, waiting(), 1000, 1000)
	open := func(r arbiter.JobRequest) (arbiter.JobInfo, error) {
		r.Process = w.process(1000, "gpuarb")
		return w.arb.OpenJob(w.now, r)
	}
	alone, _ := open(arbiter.JobRequest{Exclusive: true})
	if _, err := open(arbiter.JobRequest{NoWait: true}); reasonOf(err) != arbiter.ReasonBusy || !strings.Contains(err.Error(), "held alone (--exclusive) by bob's job 1") {
		t.Errorf("beside one that has all devices alone: %v", err)
	}
	w.arb.CloseJob(w.now, alone.ID)
	never, err := open(arbiter.JobRequest{NoWait: true})
	if err != nil {
		t.Fatal(err)
	}
	if later, _ := open(arbiter.JobRequest{Exclusive: true}); later.Waiting == 0 {
		t.Error("its devices are taken from under it")
	}
	w.client(never.ID, 1).context()
}

// TestHeadroomFollowsThePolicy: switching charge_overhead on removes all headroom, and switching it off restores it.
func TestHeadroomFollowsThePolicy(t *testing.T) {
	p := costly(50)
	w := newWorld(t, p, 10_000)
	w.reserve(100)
	for _, step := range []struct {
		charged  bool
		capacity accounting.Bytes
	}{{false, 9950}, {true, 10_000}, {false, 9950}, {false, 9950}} {
		p.ChargeOverhead = step.charged
		w.arb.SetPolicy(w.now, p)
		if got := w.arb.Snapshot(w.now).Devices[0].Capacity; got != step.capacity {
			t.Errorf("charge_overhead=%v: capacity %d, want %d", step.charged, got, step.capacity)
		}
	}
}

// TestHeadroomOfAProcessWithinItsJobs: the headroom of a process is part of its job's, as its memory.min is. The device keeps room for one
// context of both, and no second process gets it.
func TestHeadroomOfAProcessWithinItsJobs(t *testing.T) {
	w := newWorld(t, costly(50), 1000)
	id, _ := w.reserve(900)
	own, other := w.client(id, 0), w.client(id, 0)
	if err := w.arb.SetProcessLimits(w.now, rules.Change{Device: 0, Min: ptr(size(100)), Privileged: true}, own.session); err != nil {
		t.Fatal(err)
	}
	w.client(0, 0).must(50)
	if d := w.arb.Snapshot(w.now).Devices[0]; d.Capacity != 950 || d.Committed != 950 {
		t.Fatalf("%+v", d)
	}
	if o := other.contexts(1); o.Waiting == 0 {
		t.Errorf("the room is kept for the process that has its own: %+v", o)
	}
	own.context()
	if d := w.arb.Snapshot(w.now).Devices[0]; d.Capacity != 950 || d.Overhead != 50 {
		t.Errorf("%+v", d)
	}
}
