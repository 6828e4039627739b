package gpufs

// This file takes the snapshots that the files show. node.go asks for them; the daemon implements View.

import (
	"cmp"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/gpuarb/gpuarb/internal/figures"
)

// View is the source of the shown state. Its methods must be safe for concurrent use by many callers. They may block
// only for as long as a copy of the state takes. Neither side changes a returned snapshot. Slices have the order that
// figures.Snapshot defines.
type View interface {
	// Snapshot returns the whole state at one moment.
	Snapshot() figures.Snapshot
	// SnapshotOf returns the part of Snapshot about the processes with a PID, their leases and their jobs. Most of
	// the files that programs read are about one process, and there may be thousands of processes.
	SnapshotOf(pid int) figures.Snapshot
	// Leases returns the part of Snapshot about leases, which users read most often. There may be thousands of
	// leases.
	Leases() figures.Snapshot
}

// maxRecentAge is the greatest age of a snapshot that answers which files exist. It bounds the daemon's work for a
// walk through a thousand folders. The answer "no such file" and all contents come from fresh snapshots.
const maxRecentAge = 10 * time.Millisecond

// snapshots takes snapshots from a view. Its methods are safe for concurrent use.
type snapshots struct {
	view View

	mu        sync.Mutex // guards the fields below
	last      *snapshot  // the newest snapshot
	requested time.Time  // when last was requested: of two snapshots, the later request is newer
	received  time.Time  // when the view returned last, which may be long after the request
}

// snapshot is one snapshot of a view.
type snapshot struct{ figures.Snapshot }

// fresh returns a snapshot that the view began to take after the call of fresh.
func (s *snapshots) fresh() *snapshot {
	requested := time.Now()
	now, received := &snapshot{s.view.Snapshot()}, time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requested.Before(requested) {
		s.last, s.requested, s.received = now, requested, received
	}
	return now
}

// freshLeases returns a fresh snapshot of the leases only.
func (s *snapshots) freshLeases() *snapshot { return &snapshot{s.view.Leases()} }

// freshOf returns a fresh snapshot of the processes with one PID only.
func (s *snapshots) freshOf(pid int) *snapshot { return &snapshot{s.view.SnapshotOf(pid)} }

// recent returns the newest snapshot if its age is below maxRecentAge, otherwise a fresh one.
func (s *snapshots) recent() *snapshot {
	s.mu.Lock()
	last, received := s.last, s.received
	s.mu.Unlock()
	if time.Since(received) < maxRecentAge {
		return last
	}
	return s.fresh()
}

// limitedTo returns what a process whose view is limited to a job sees of a whole snapshot; 0: the process sees
// everything.
func (s *snapshot) limitedTo(job uint64) *snapshot {
	if job == 0 {
		return s
	}
	return &snapshot{s.Within(job)}
}

func (s *snapshot) device(index int) (figures.DeviceState, bool) {
	return numbered(s.Devices, index, func(d *figures.DeviceState) int { return d.Index })
}

// numbered finds the element with a number in a list that is sorted by number.
func numbered[T any, N cmp.Ordered](list []T, n N, of func(*T) N) (found T, ok bool) {
	i := sort.Search(len(list), func(i int) bool { return of(&list[i]) >= n })
	if i == len(list) || of(&list[i]) != n {
		return found, false
	}
	return list[i], true
}

// process finds a process by PID and start time, because a PID alone may belong to a later process.
func (s *snapshot) process(id processID) (figures.ProcessState, bool) {
	p, ok := s.processByPID(id.pid)
	return p, ok && p.StartTicks == id.start
}

// processByPID finds the latest process with a PID. The list may also have an earlier, dead process whose memory the
// driver has not returned yet.
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

// latest returns the processes; of several with one PID, only the latest.
func (s *snapshot) latest() (list []figures.ProcessState, ok bool) {
	for i, p := range s.Processes {
		if i == 0 || p.PID != s.Processes[i-1].PID { // equal: another session of that process, or an earlier process
			now, _ := s.processByPID(p.PID)
			list = append(list, now)
		}
	}
	return list, true
}

func (s *snapshot) job(id uint64) (figures.JobState, bool) {
	return numbered(s.Jobs, id, func(j *figures.JobState) uint64 { return j.ID })
}

// processID identifies a process by its PID and its start time in clock ticks since the machine booted.
type processID struct {
	pid   int
	start uint64
}
