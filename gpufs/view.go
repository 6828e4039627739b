package gpufs

import (
	"cmp"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/gpuarb/gpuarb/internal/figures"
)

// View is what the filesystem shows. Snapshot must be safe for concurrent use, and be made for
// many who ask at once; it must not block for longer than it takes to copy the state; what it returns
// is not changed afterwards, by either side. Its slices are ordered as
// figures.Snapshot says.
type View interface {
	Snapshot() figures.Snapshot
	// SnapshotOf has what Snapshot has of the processes with a PID, their leases and their jobs, and nothing else: most
	// files that programs read are of one process, and there may be thousands.
	SnapshotOf(pid int) figures.Snapshot
	// Leases has what Snapshot has of leases, and nothing else: there may be thousands, and people look at these most.
	Leases() figures.Snapshot
}

// recentEnough is how old a snapshot may be that answers which files there are.
// It bounds what a walk through a thousand processes costs the daemon. An answer
// of "no such file", and everything that is read, is always fresh.
const recentEnough = 10 * time.Millisecond

// snapshots takes snapshots from a view. Its methods are safe for concurrent use.
type snapshots struct {
	view View

	mu    sync.Mutex
	last  *snapshot // the newest
	asked time.Time // when it was asked for: tells which of two is newer
	given time.Time // a view that paces itself gives it long after it was asked
}

// snapshot is what a view gave.
type snapshot struct{ figures.Snapshot }

// fresh returns a snapshot that was taken after fresh was called.
func (s *snapshots) fresh() *snapshot {
	asked := time.Now()
	now, given := &snapshot{s.view.Snapshot()}, time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked.Before(asked) {
		s.last, s.asked, s.given = now, asked, given
	}
	return now
}

// freshLeases returns one of the leases alone.
func (s *snapshots) freshLeases() *snapshot { return &snapshot{s.view.Leases()} }

// freshOf returns one of the processes with a PID alone.
func (s *snapshots) freshOf(pid int) *snapshot { return &snapshot{s.view.SnapshotOf(pid)} }

// recent returns the newest snapshot if it is recent enough, else a fresh one.
func (s *snapshots) recent() *snapshot {
	s.mu.Lock()
	last, given := s.last, s.given
	s.mu.Unlock()
	if time.Since(given) < recentEnough {
		return last
	}
	return s.fresh()
}

func (s *snapshot) device(index int) (figures.DeviceState, bool) {
	return numbered(s.Devices, index, func(d *figures.DeviceState) int { return d.Index })
}

// numbered finds the first of a list with a number, by which it is ordered.
func numbered[T any, N cmp.Ordered](list []T, n N, of func(*T) N) (found T, ok bool) {
	i := sort.Search(len(list), func(i int) bool { return of(&list[i]) >= n })
	if i == len(list) || of(&list[i]) != n {
		return found, false
	}
	return list[i], true
}

// process finds a process by PID and start time: the PID alone may be another's by now.
func (s *snapshot) process(id processID) (figures.ProcessState, bool) {
	p, ok := s.processByPID(id.pid)
	return p, ok && p.StartTicks == id.start
}

// processByPID finds the process that has a PID now: a dead one whose memory is not
// yet back may have had it before.
func (s *snapshot) processByPID(pid int) (figures.ProcessState, bool) {
	i, ok := slices.BinarySearchFunc(s.Processes, pid, func(p figures.ProcessState, pid int) int {
		return cmp.Compare(p.PID, pid)
	})
	if !ok {
		return figures.ProcessState{}, false
	}
	p := s.Processes[i]
	for _, q := range s.Processes[i+1:] {
		if q.PID != pid {
			break
		}
		if q.StartTicks > p.StartTicks {
			p = q
		}
	}
	return p, true
}

// latest are the processes, of each PID the one that has it now.
func (s *snapshot) latest() (list []figures.ProcessState, ok bool) {
	for i, p := range s.Processes {
		if i == 0 || p.PID != s.Processes[i-1].PID { // else another session of it, or of the PID's last owner
			now, _ := s.processByPID(p.PID)
			list = append(list, now)
		}
	}
	return list, true
}

func (s *snapshot) job(id uint64) (figures.JobState, bool) {
	return numbered(s.Jobs, id, func(j *figures.JobState) uint64 { return j.ID })
}

// processID is the identity of a process.
type processID struct {
	pid   int
	start uint64
}
