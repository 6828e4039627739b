package statefile

import (
	"os"
	"path/filepath"
	"testing"
	"unsafe"
)

// No damage of the state file breaks the daemon that opens it. setaside_test.go tests which files are refused.

// FuzzOpen checks that a damaged file is opened or refused. Readings of an opened file stay inside its tables, and it
// can be written.
func FuzzOpen(f *testing.F) {
	jobs := int64(headerSize)
	sessions := jobs + MaxJobs*int64(jobSize)
	leases := sessions + MaxSessions*int64(sessSize)
	tickets := leases + MaxLeases*int64(leaseSize)
	threads := tickets + MaxTickets*int64(tickSize) + MaxLimits*int64(limitSize)
	ff := []byte{0xff, 0xff, 0xff, 0xff}
	one := []byte{1, 0, 0, 0}
	high := int64(unsafe.Offsetof(header{}.HighJob))
	for _, at := range []int64{0, 8, 16, 40, high, high + 4, high + 8, high + 12, jobs, sessions, leases, leases + int64(leaseSize), tickets, threads, threads + 4} {
		f.Add(at, ff)
		f.Add(at, one)
	}
	f.Fuzz(func(t *testing.T, at int64, damage []byte) {
		path := filepath.Join(t.TempDir(), "state")
		begin(t, path)
		size := int64(fileSize)
		at = ((at % size) + size) % size
		file, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteAt(damage[:min(int64(len(damage)), size-at, 1<<16)], at); err != nil {
			t.Fatal(err)
		}
		_ = file.Close()
		s, _, err := Open(path)
		if err != nil {
			return
		}
		defer s.Close()
		s.Jobs.Each(func(_ int, j *Job) { _ = TextOf(&j.Command) })
		s.Leases.Each(func(i int, l *Lease) { _ = l.Granted })
		s.Threads.Each(func(i int, r *Thread) {
			if int(r.Lease) >= MaxLeases {
				t.Errorf("a thread of lease record %d", r.Lease)
			}
		})
		seen := map[int]bool{}
		s.Sessions.Each(func(i int, _ *Session) { seen[i] = true })
		i, row, err := s.Sessions.New()
		if err != nil {
			return // the damage may say that the table is full
		}
		if seen[i] || row.Live != 0 {
			t.Errorf("record %d is given out, and was in use", i)
		}
		s.Sessions.Commit(i)
		s.Sessions.Free(i)
	})
}

// begin makes a file with two records in each table except that of cgroups.
func begin(t *testing.T, path string) {
	t.Helper()
	s, _, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		j, _, _ := s.Jobs.New()
		s.Jobs.Commit(j)
		n, r, _ := s.Sessions.New()
		r.Token[0] = 1
		s.Sessions.Commit(n)
		l, lease, _ := s.Leases.New()
		lease.Session = uint32(n)
		s.Leases.Commit(l)
		th, thread, _ := s.Threads.New()
		thread.Lease = uint32(l)
		s.Threads.Commit(th)
		k, _, _ := s.Tickets.New()
		s.Tickets.Commit(k)
		m, _, _ := s.Limits.New()
		s.Limits.Commit(m)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
