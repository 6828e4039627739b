package arbiter_test

import (
	"reflect"
	"testing"
)

// A snapshot made in parts is the same as one that is made at once, where nothing moves.
func TestPictureInParts(t *testing.T) {
	w := newWorld(t, waiting(), 1000, 1000)
	for i := range 10 {
		w.client(0, i%2).must(150)
	}
	w.client(0, 0).wait(400)
	p := w.arb.Picture(w.now)
	p.Sort()
	for p.Add(3) {
	}
	if got, want := p.Done(), w.arb.Snapshot(w.now); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nis not\n%+v", got, want)
	}
}

// What ends while a snapshot is made is left out of what comes, and what begins is not in it.
func TestPictureWhileThingsEnd(t *testing.T) {
	w := newWorld(t, waiting(), 1000)
	var all []*client
	for range 4 {
		all = append(all, w.client(0, 0))
		all[len(all)-1].must(100)
	}
	p := w.arb.Picture(w.now)
	p.Sort()
	p.Add(1)
	forget(w.arb, w.now, all[0].session)
	forget(w.arb, w.now, all[3].session)
	all[1].must(50)
	w.client(0, 0).must(10)
	for p.Add(1) {
	}
	s := p.Done()
	if len(s.Leases) != 3 || len(s.Processes) != 2 || len(s.Jobs) != 2 {
		t.Fatalf("%d leases, %d processes, %d jobs", len(s.Leases), len(s.Processes), len(s.Jobs))
	}
	if s.Leases[1].Used != 150 || s.Devices[0].Used != 260 || s.Stats.Clients != 2 {
		t.Errorf("%+v, %+v", s.Leases[1], s.Devices[0])
	}
}
