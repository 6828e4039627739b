package arbiter_test

import (
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/reading"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// A client that resumes its session reports what it uses. The ledger follows as far as asking would have been granted, or as far as a
// reading of the device agrees. receipt_test.go tests grants whose reply was lost, and queue_restart_test.go random reports.

func TestRecount(t *testing.T) {
	for _, c := range []struct {
		name         string
		used, figure accounting.Bytes
		want         accounting.Bytes // granted afterwards; 100 of them are idle
		state        figures.State
	}{
		{"as known", 500, 0, 600, figures.StateRunning},
		{"an answer was lost", 300, 0, 400, figures.StateRunning},
		{"nothing in use", 0, 0, 100, figures.StateRunning},
		{"taken meanwhile, and there is room", 700, 0, 800, figures.StateUnverified},
		{"taken meanwhile, to the last byte of the budget", 900, 0, 1000, figures.StateUnverified},
		{"more than there is room for, on its word alone", 5000, 0, 1000, figures.StateUnverified},
		{"more than there is room for, and the device agrees", 5000, 5100, 5100, figures.StateOver},
		{"more than there is room for, the device knows of some", 5000, 2000, 2100, figures.StateOver},
		{"absurd", accounting.Max, accounting.Max, 8000 + 100, figures.StateOver},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, exact(size(1000)), 8000)
			x := w.client(0, 0)
			x.must(600)
			x.free(100)
			w.arb.Observe(w.now, arbiter.Usage{Unnamed: c.figure == accounting.Max, Processes: []arbiter.ProcessUsage{x.figure(c.figure)}})
			got := w.arb.Recount(w.now, x.lease, c.used)
			x.word.granted = got
			if row := x.row(); got != c.want || row.Granted != c.want || row.Credit != 100 || row.State != c.state {
				t.Errorf("granted %d, want %d, %s: %+v", got, c.want, c.state, row)
			}
		})
	}
}

// TestRecountExplainsExcess: memory that was taken while there was no daemon looks like excess until the client reports it. From then on it
// counts once, and is free again when the client frees it.
func TestRecountExplainsExcess(t *testing.T) {
	w := newWorld(t, exact(size(1000)), 8000)
	x := w.telling(reading.ClientReport{})
	x.contexts(1)
	x.must(200)
	w.read(3, x.figure(264))
	w.read(2, x.figure(2264)) // 2000 bytes more than were granted
	if row := x.row(); row.Excess != 2000 {
		t.Fatalf("not seen as excess: %+v", row)
	}
	for _, used := range []accounting.Bytes{2300, 2200} {
		x.word.granted = w.arb.Recount(w.now, x.lease, used)
		if row, dev := x.row(), w.arb.Snapshot(w.now).Devices[0]; row.Used != min(used, 2264) || row.Excess != 0 || dev.Committed != row.Used {
			t.Errorf("told of %d: %+v, %+v", used, row, dev)
		}
	}
	x.free(2100)
	w.arb.Freed(w.now, x.lease)
	x.must(900)
}

// TestRecountTakesNoMoreThanAsking: a client's report alone takes no more bytes than asking would.
func TestRecountTakesNoMoreThanAsking(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 1000)
	honest, liar := w.client(0, 0), w.client(0, 0)
	honest.must(600)
	liar.must(100)
	liar.word.granted = w.arb.Recount(w.now, liar.lease, 1000)
	if row := liar.row(); row.Granted != 400 {
		t.Errorf("the liar has %d bytes, want the 400 that were free", row.Granted)
	}
	if d := w.arb.Snapshot(w.now).Devices[0]; d.Committed > d.Capacity {
		t.Errorf("%d bytes committed of %d", d.Committed, d.Capacity)
	}
}

func TestRecountOfEndedLease(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 1000)
	if got := w.arb.Recount(w.now, 99, 5); got != 0 {
		t.Errorf("an unknown lease has %d bytes", got)
	}
	for name, end := range map[string]func(*client){
		"ended":   func(c *client) { w.arb.EndSession(w.now, c.session) },
		"spoiled": func(c *client) { w.arb.Clamped(w.now, c.lease) },
	} {
		c := w.client(0, 0)
		c.must(100)
		end(c)
		if got := w.arb.Recount(w.now, c.lease, 900); got != 100 {
			t.Errorf("%s: %d bytes, want 100", name, got)
		}
		forget(w.arb, w.now, c.session)
	}
	c := w.client(0, 0)
	c.must(100)
	w.arb.LoseDevice(w.now, 0)
	if got := w.arb.Recount(w.now, c.lease, 50); got != 0 {
		t.Errorf("lost: %d bytes, want 0", got)
	}
}

// TestRecountServesWithTheSlot: a client that resumes its session holds nothing any more. The first waiting request needs its slot and its
// memory, and gets both. A later request that needs no slot does not get the memory first.
func TestRecountServesWithTheSlot(t *testing.T) {
	p := waiting()
	p.Devices = []rules.DeviceRule{{SlotsMax: 2}}
	w := newWorld(t, p, 100)
	resumes, stays, enters := w.client(0, 0), w.client(0, 0), w.client(0, 0)
	resumes.must(50)
	stays.must(50)
	first, second := enters.wait(12), stays.wait(45)
	resumes.word.granted = w.arb.Recount(w.now, resumes.lease, 0)
	w.served()
	w.arb.Freed(w.now, resumes.lease)
	w.served(first)
	enters.free(12)
	w.served(second)
}
