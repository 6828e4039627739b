package statefile

import (
	"errors"
	"path/filepath"
	"testing"
)

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
	if _, _, err := f.Sessions.New(); err != nil { // never committed
		t.Fatal(err)
	}
	li, l, _ := f.Leases.New()
	l.Session = uint32(i)
	f.Leases.Commit(li)
	l.Grant(f.Answers(i), li, 5, 100, 100)

	g, fresh := open(t, path)
	if fresh {
		t.Fatal("an existing file is fresh")
	}
	n := 0
	g.Sessions.Each(func(i int, s *Session) {
		n++
		if s.PID != 7 || s.StartTicks != 99 {
			t.Errorf("session %+v", s)
		}
		answers := g.Answers(i)
		if a, ok := answers.Granted(5); !ok || a.Bytes != 100 {
			t.Errorf("request 5: %+v, %v", a, ok)
		}
		if _, ok := answers.Granted(0); ok {
			t.Error("request 0 was never answered")
		}
	})
	if n != 1 {
		t.Errorf("%d live sessions, want 1: an uncommitted one must not count", n)
	}
	g.Leases.Each(func(_ int, l *Lease) {
		if l.Granted != 100 {
			t.Errorf("granted %d, want 100", l.Granted)
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

// TestRecover goes through every place where a daemon can die in a change.
func TestRecover(t *testing.T) {
	for _, c := range []struct {
		name      string
		die       func(l *Lease, s Answers)
		epoch     uint16
		pageKnown bool
		want      uint64
		answered  bool
	}{
		{"nothing open", func(*Lease, Answers) {}, 4, true, 100, false},
		{"take announced, word not swapped", func(l *Lease, _ Answers) { l.Announce(ChangeTake, 5, 60) }, 4, true, 100, false},
		{"take announced, word swapped", func(l *Lease, _ Answers) { l.Announce(ChangeTake, 5, 60) }, 5, true, 60, false},
		{"give announced, word not swapped", func(l *Lease, _ Answers) { l.Announce(ChangeGive, 5, 160) }, 4, true, 100, false},
		{"give announced, word swapped", func(l *Lease, _ Answers) { l.Announce(ChangeGive, 5, 160) }, 5, true, 160, false},
		{"take, page lost: the larger", func(l *Lease, _ Answers) { l.Announce(ChangeTake, 5, 60) }, 0, false, 100, false},
		{"give, page lost: the larger", func(l *Lease, _ Answers) { l.Announce(ChangeGive, 5, 160) }, 0, false, 160, false},
		{"grant announced, not remembered", func(l *Lease, _ Answers) {
			l.Request, l.Bytes, l.After, l.Open = 9, 50, 150, ChangeGrant
		}, 4, true, 150, true},
		{"grant announced and remembered", func(l *Lease, s Answers) {
			l.Request, l.Bytes, l.After, l.Open = 9, 50, 150, ChangeGrant
			s.remember(Answered{Request: 9, Bytes: 50})
		}, 4, true, 150, true},
		{"grant remembered by halves", func(l *Lease, s Answers) {
			l.Request, l.Bytes, l.After, l.Open = 9, 50, 150, ChangeGrant
			s.record.Ring[0] = Answered{Request: 9, Bytes: 7, Lease: 3, Kind: AnsweredStreams} // the rest is of the one before
		}, 4, true, 150, true},
		{"grant remembered and not counted", func(l *Lease, s Answers) {
			l.Request, l.Bytes, l.After, l.Open = 9, 50, 150, ChangeGrant
			s.record.Ring[0] = Answered{Request: 9, Bytes: 50}
		}, 4, true, 150, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, l := Answers{record: &Session{}}, &Lease{Granted: 100}
			c.die(l, s)
			l.Recover(s, 0, c.epoch, c.pageKnown)
			if l.Granted != c.want || l.Open != ChangeNone {
				t.Errorf("granted %d open %d, want %d and none", l.Granted, l.Open, c.want)
			}
			if a, ok := s.Granted(9); ok != c.answered || ok && a != (Answered{Request: 9, Bytes: 50}) {
				t.Errorf("request 9 remembered: %v, %+v, want %v", ok, a, c.answered)
			}
			if c.answered && s.record.RingNext != 1 {
				t.Errorf("remembered %d times", s.record.RingNext)
			}
		})
	}
}

// TestRecoverStreams goes through the places where a daemon can die while it writes
// down how many streams there are.
func TestRecoverStreams(t *testing.T) {
	announced := func(l *Lease) { l.Request, l.After, l.Open = 9, 4, ChangeStreams }
	for name, die := range map[string]func(l *Lease, s Answers){
		"announced": func(l *Lease, _ Answers) { announced(l) },
		"remembered": func(l *Lease, s Answers) {
			announced(l)
			s.remember(Answered{Request: 9, Lease: 7, Kind: AnsweredStreams})
		},
		"done": func(l *Lease, s Answers) { l.SetStreams(s, 7, 9, 4) },
	} {
		t.Run(name, func(t *testing.T) {
			s, l := Answers{record: &Session{}}, &Lease{Granted: 100, Streams: 3}
			die(l, s)
			l.Recover(s, 7, 0, true)
			if l.Streams != 4 || l.Granted != 100 || l.Open != ChangeNone || s.record.RingNext != 1 {
				t.Errorf("%d streams, %d bytes, change %d, remembered %d times", l.Streams, l.Granted, l.Open, s.record.RingNext)
			}
			if s.Streamed(9, 7) {
				t.Error("it cannot come again before the session is taken up again")
			}
			s.Resumed()
			if !s.Streamed(9, 7) || s.Streamed(9, 6) || s.Streamed(8, 7) || s.Streamed(0, 7) {
				t.Error("which request for streams can come again")
			}
			if _, ok := s.Granted(9); ok {
				t.Error("it is taken for a grant")
			}
		})
	}
}

func TestResumedForgetsGrants(t *testing.T) {
	s, l := Answers{record: &Session{}}, &Lease{}
	l.Grant(s, 0, 5, 100, 100)
	if s.Resumed(); l.Granted != 100 {
		t.Errorf("granted %d", l.Granted)
	}
	if _, ok := s.Granted(5); ok {
		t.Error("a grant that was settled can be had again for nothing")
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

// TestRecoverContexts is TestRecoverStreams for contexts, and for who is not told.
func TestRecoverContexts(t *testing.T) {
	announced := func(l *Lease) { l.Request, l.After, l.Open = 9, 2, ChangeContexts }
	for name, die := range map[string]func(l *Lease, s Answers){
		"announced": func(l *Lease, _ Answers) { announced(l) },
		"remembered": func(l *Lease, s Answers) {
			announced(l)
			s.remember(Answered{Request: 9, Lease: 7, Kind: AnsweredContexts})
		},
		"done": func(l *Lease, s Answers) { l.SetContexts(s, 7, 9, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			s, l := Answers{record: &Session{}}, &Lease{Granted: 100, Contexts: 1, Streams: 3}
			die(l, s)
			l.Recover(s, 7, 0, true)
			if l.Contexts != 2 || l.Streams != 3 || l.Granted != 100 || l.Open != ChangeNone || s.record.RingNext != 1 {
				t.Errorf("%+v", l)
			}
			if s.Contexted(9, 7) {
				t.Error("it cannot come again before the session is taken up again")
			}
			s.Resumed()
			if !s.Contexted(9, 7) || s.Contexted(9, 6) || s.Contexted(8, 7) || s.Streamed(9, 7) {
				t.Error("which request for contexts can come again")
			}
			if !s.Forget(9) || s.Contexted(9, 7) {
				t.Error("what came again and is taken back would not be new")
			}
		})
	}
}

// TestManyAnswers: as many requests of a process as can wait are decided in one moment, and the daemon dies: the
// next one knows them all, and knows what is taken back for new.
func TestManyAnswers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	f, _ := open(t, path)
	const waiting = 48
	i, r, _ := f.Sessions.New()
	r.Token = [16]byte{1}
	f.Sessions.Commit(i)
	li, l, _ := f.Leases.New()
	f.Leases.Commit(li)
	for n := range uint64(waiting) {
		l.Grant(f.Answers(i), li, n+1, 10*n, 0)
	}
	g, _ := open(t, path)
	answers := g.Answers(i)
	for n := range uint64(waiting) {
		if a, ok := answers.Granted(n + 1); !ok || a.Bytes != 10*n {
			t.Errorf("request %d: %+v, %v", n+1, a, ok)
		}
	}
	if !answers.Forget(3) || answers.Forget(3) {
		t.Error("the oldest ones can be taken back once, too")
	}
	answers.Resumed()
	if _, ok := answers.Granted(4); ok {
		t.Error("a grant that was settled can be had again for nothing")
	}
}

func TestForget(t *testing.T) {
	s, l := Answers{record: &Session{}}, &Lease{}
	l.Grant(s, 0, 5, 100, 100)
	if s.Forget(6) || s.Forget(0) || !s.Forget(5) || s.Forget(5) {
		t.Error("what was carried out can be taken back once, and nothing else")
	}
	if _, ok := s.Granted(5); ok {
		t.Error("what was taken back is remembered")
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
