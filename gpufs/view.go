package gpufs

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// View is what the filesystem shows. Snapshot must be safe for concurrent use, and be made for
// many who ask at once; it must not block for longer than it takes to copy the state; what it returns
// is not changed afterwards, by either side. Its slices are ordered as
// accounting.Snapshot says.
type View interface {
	Snapshot() accounting.Snapshot
	// SnapshotOf has what Snapshot has of the processes with a PID, their leases and their jobs, and nothing else: most
	// files that programs read are of one process, and there may be thousands.
	SnapshotOf(pid int) accounting.Snapshot
}

// recentEnough is how old a snapshot may be that answers which files there are.
// It bounds what a walk through a thousand processes costs the daemon. An answer
// of "no such file", and everything that is read, is always fresh.
const recentEnough = 10 * time.Millisecond

// snapshots takes snapshots from a view. Its methods are safe for concurrent use.
type snapshots struct {
	view View

	mu   sync.Mutex
	last *snapshot // the newest
}

// snapshot is what a view gave.
type snapshot struct {
	accounting.Snapshot
	asked time.Time // tells which of two is newer
	given time.Time // a view that paces itself gives it long after it was asked
}

// fresh returns a snapshot that was taken after fresh was called.
func (s *snapshots) fresh() *snapshot {
	now := &snapshot{asked: time.Now()}
	now.Snapshot, now.given = s.view.Snapshot(), time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil || s.last.asked.Before(now.asked) {
		s.last = now
	}
	return now
}

// freshOf returns one of the processes with a PID alone.
func (s *snapshots) freshOf(pid int) *snapshot {
	now := time.Now()
	return &snapshot{s.view.SnapshotOf(pid), now, now}
}

// recent returns the newest snapshot if it is recent enough, else a fresh one.
func (s *snapshots) recent() *snapshot {
	s.mu.Lock()
	last := s.last
	s.mu.Unlock()
	if last != nil && time.Since(last.given) < recentEnough {
		return last
	}
	return s.fresh()
}

func (s *snapshot) device(index int) (accounting.DeviceState, bool) {
	i, ok := slices.BinarySearchFunc(s.Devices, index, func(d accounting.DeviceState, index int) int {
		return cmp.Compare(d.Index, index)
	})
	if !ok {
		return accounting.DeviceState{}, false
	}
	return s.Devices[i], true
}

// process finds a process by PID and start time: the PID alone may be another's by now.
func (s *snapshot) process(id processID) (accounting.ProcessState, bool) {
	p, ok := s.processByPID(id.pid)
	return p, ok && p.StartTicks == id.start
}

// processByPID finds the process that has a PID now: a dead one whose memory is not
// yet back may have had it before.
func (s *snapshot) processByPID(pid int) (accounting.ProcessState, bool) {
	i, ok := slices.BinarySearchFunc(s.Processes, pid, func(p accounting.ProcessState, pid int) int {
		return cmp.Compare(p.PID, pid)
	})
	if !ok {
		return accounting.ProcessState{}, false
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
func (s *snapshot) latest() (list []accounting.ProcessState, ok bool) {
	for i, p := range s.Processes {
		if i == 0 || p.PID != s.Processes[i-1].PID { // else another session of it, or of the PID's last owner
			now, _ := s.processByPID(p.PID)
			list = append(list, now)
		}
	}
	return list, true
}

func (s *snapshot) job(id uint64) (accounting.JobState, bool) {
	i, ok := slices.BinarySearchFunc(s.Jobs, id, func(j accounting.JobState, id uint64) int {
		return cmp.Compare(j.ID, id)
	})
	if !ok {
		return accounting.JobState{}, false
	}
	return s.Jobs[i], true
}

// processID is the identity of a process.
type processID struct {
	pid   int
	start uint64
}
