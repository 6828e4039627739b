package statefile

import (
	"errors"
	"path/filepath"
	"testing"
)

// Records that were committed outlive the daemon, and a change that a crash interrupted is finished or withdrawn as a
// whole. setaside_test.go tests files that cannot be used, and fuzz_test.go damaged ones.

func open(t *testing.T, path string) (*File, bool) {
	t.Helper()
	f, fresh, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f, fresh
}

func TestRecordsOutliveTheMapping(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	f, fresh := open(t, path)
	if !fresh {
		t.Fatal("a new file is not fresh")
	}
	i, s, err := f.Sessions.New()
	if err != nil {
		t.Fatal(err)
	}
	s.PID, s.StartTicks = 7, 99
	f.Sessions.Commit(i)
	if _, _, err := f.Sessions.New(); err != nil { // not committed
		t.Fatal(err)
	}
	li, l, _ := f.Leases.New()
	l.Session = uint32(i)
	f.Leases.Commit(li)
	l.Grant(100)
	l.SetObjects(3, 2)

	g, fresh := open(t, path)
	if fresh {
		t.Fatal("an existing file is fresh")
	}
	n := 0
	g.Sessions.Each(func(_ int, s *Session) {
		n++
		if s.PID != 7 || s.StartTicks != 99 {
			t.Errorf("session %+v", s)
		}
	})
	if n != 1 {
		t.Errorf("%d live sessions, want 1: an uncommitted one must not count", n)
	}
	g.Leases.Each(func(_ int, l *Lease) {
		if l.Granted != 100 || l.Streams != 3 || l.Contexts != 2 {
			t.Errorf("%+v, want 100 bytes, 3 streams, 2 contexts", l)
		}
	})
}

func TestFreedRecordsAreUsedAgain(t *testing.T) {
	f, _ := open(t, filepath.Join(t.TempDir(), "state"))
	for range 3 * MaxJobs {
		i, _, err := f.Jobs.New()
		if err != nil {
			t.Fatal(err)
		}
		f.Jobs.Commit(i)
		f.Jobs.Free(i)
	}
	if *f.Jobs.high != 1 {
		t.Errorf("the table grew to %d records for one at a time", *f.Jobs.high)
	}
}

func TestRecordsOfADamagedFileAreUsedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	f, _ := open(t, path)
	i, row, _ := f.Limits.New()
	row.Live = 7 // invalid: neither live nor free
	g, _ := open(t, path)
	g.Limits.Each(func(int, *Limit) { t.Error("a damaged record counts") })
	if j, row, err := g.Limits.New(); j != i || err != nil || *row != (Limit{}) {
		t.Errorf("record %d: %+v, %v; want %d, empty", j, row, err, i)
	}
}

func TestFullTable(t *testing.T) {
	f, _ := open(t, filepath.Join(t.TempDir(), "state"))
	for range MaxJobs {
		if _, _, err := f.Jobs.New(); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := f.Jobs.New(); !errors.Is(err, ErrFull) {
		t.Errorf("got %v, want ErrFull", err)
	}
}

// TestRecover simulates a crash at each step of a change of the credit word.
func TestRecover(t *testing.T) {
	for _, c := range []struct {
		name      string
		die       func(l *Lease)
		epoch     uint16
		pageKnown bool
		want      uint64
	}{
		{"nothing open", func(*Lease) {}, 4, true, 100},
		{"take announced, word not swapped", func(l *Lease) { l.Announce(ChangeTake, 5, 60) }, 4, true, 100},
		{"take announced, word swapped", func(l *Lease) { l.Announce(ChangeTake, 5, 60) }, 5, true, 60},
		{"give announced, word not swapped", func(l *Lease) { l.Announce(ChangeGive, 5, 160) }, 4, true, 100},
		{"give announced, word swapped", func(l *Lease) { l.Announce(ChangeGive, 5, 160) }, 5, true, 160},
		{"take, page lost: the larger", func(l *Lease) { l.Announce(ChangeTake, 5, 60) }, 0, false, 100},
		{"give, page lost: the larger", func(l *Lease) { l.Announce(ChangeGive, 5, 160) }, 0, false, 160},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &Lease{Granted: 100}
			c.die(l)
			l.Recover(c.epoch, c.pageKnown)
			if l.Granted != c.want || l.Open != ChangeNone {
				t.Errorf("granted %d open %d, want %d and none", l.Granted, l.Open, c.want)
			}
		})
	}
}

func TestAnonymous(t *testing.T) {
	why := errors.New("no room")
	f, err := Anonymous(why)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if !errors.Is(f.Volatile(), why) {
		t.Errorf("volatile: %v", f.Volatile())
	}
	for range MaxJobs {
		i, j, err := f.Jobs.New()
		if err != nil {
			t.Fatal(err)
		}
		j.ID = uint64(i)
		f.Jobs.Commit(i)
	}
	n := 0
	f.Jobs.Each(func(int, *Job) { n++ })
	if n != MaxJobs {
		t.Errorf("%d records", n)
	}
}

func TestPlacesOutliveTheMapping(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	f, _ := open(t, path)
	want := Ticket{PID: 7, StartTicks: 8, Type: 5, Request: 9, Arrival: 10, Since: 11, Live: 1}
	for _, commit := range []bool{true, false} {
		i, r, err := f.Tickets.New()
		if err != nil {
			t.Fatal(err)
		}
		if *r = want; !commit {
			r.Live = 0
			continue
		}
		f.Tickets.Commit(i)
	}
	g, fresh := open(t, path)
	if fresh {
		t.Fatal("an existing file is fresh")
	}
	n := 0
	g.Tickets.Each(func(_ int, r *Ticket) {
		if n++; *r != want {
			t.Errorf("%+v", r)
		}
	})
	if n != 1 {
		t.Errorf("%d places, want 1", n)
	}
}

// TestThreadsAreOfLeases checks that a thread of a missing lease is dropped.
func TestThreadsAreOfLeases(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	f, _ := open(t, path)
	lease, _, err := f.Leases.New()
	if err != nil {
		t.Fatal(err)
	}
	f.Leases.Commit(lease)
	for of, thread := range []uint32{17, 18} {
		i, row, err := f.Threads.New()
		if err != nil {
			t.Fatal(err)
		}
		row.Lease, row.Maker = uint32(lease+of), Maker{Thread: thread, Contexts: 1}
		f.Threads.Commit(i)
	}
	g, _ := open(t, path)
	g.Threads.Each(func(_ int, row *Thread) {
		if row.Maker.Thread != 17 {
			t.Errorf("thread %d of a lease that is not there", row.Maker.Thread)
		}
	})
}
