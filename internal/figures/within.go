package figures

// This file reduces a snapshot to what a program inside the job of a cgroup may see. The daemon calls it for clients that run in such a
// job and are not privileged. Another file, privacy.go, hides the command lines of other users.

import "slices"

// Within returns the snapshot for a program inside the job own of a cgroup. It has that job, and the jobs inside it, with their programs.
// It has the jobs around own too, because their budgets limit own, but without their programs. All other jobs appear only in the sums
// of each device. The result shares unchanged data with s.
func (s Snapshot) Within(own uint64) Snapshot {
	around := make(map[uint64]uint64, len(s.Jobs))
	for i := range s.Jobs {
		around[s.Jobs[i].ID] = s.Jobs[i].Inside
	}
	isInside := func(id, of uint64) bool {
		for ; id != 0; id = around[id] {
			if id == of {
				return true
			}
		}
		return false
	}
	inside := func(id uint64) bool { return isInside(id, own) }
	s.Leases = kept(s.Leases, func(l *LeaseState) bool { return inside(l.Job) })
	s.Processes = kept(s.Processes, func(p *ProcessState) bool { return inside(p.Job) })
	s.Queue = kept(s.Queue, func(t *TicketState) bool { return inside(t.Job) })
	for i := range s.Queue {
		s.Queue[i].Asks = kept(s.Queue[i].Asks, func(id *uint64) bool { return inside(*id) })
	}
	s.Jobs = kept(s.Jobs, func(j *JobState) bool { return inside(j.ID) || isInside(own, j.ID) })
	for i := range s.Jobs {
		if j := &s.Jobs[i]; !inside(j.ID) {
			j.Processes, j.Denial, j.StillRuns, j.Failure = nil, "", "", ""
		}
	}
	s.Devices = slices.Clone(s.Devices)
	for i := range s.Devices {
		d := &s.Devices[i]
		d.Holders = kept(d.Holders, func(h *HolderState) bool { return inside(h.Job) })
		d.UnmanagedBy = kept(d.UnmanagedBy, func(u *UnmanagedState) bool { return inside(u.Job) })
	}
	shown := func(id uint64) bool { return inside(id) }
	s.Budgets = kept(s.Budgets, func(b *BudgetState) bool { return slices.ContainsFunc(b.Jobs, shown) })
	for i := range s.Budgets {
		b := &s.Budgets[i]
		b.Jobs = kept(b.Jobs, func(id *uint64) bool { return shown(*id) })
	}
	s.Users = kept(s.Users, func(u *UserState) bool {
		return slices.ContainsFunc(s.Jobs, func(j JobState) bool { return j.UID == u.UID && inside(j.ID) })
	})
	for i := range s.Users {
		s.Users[i] = UserState{UID: s.Users[i].UID, Name: s.Users[i].Name, Max: s.Users[i].Max}
	}
	s.sumUsers()
	return s
}

// kept returns a new slice with the rows for which keep returns true; empty, never nil.
func kept[T any](rows []T, keep func(*T) bool) []T {
	left := make([]T, 0, len(rows))
	for i := range rows {
		if keep(&rows[i]) {
			left = append(left, rows[i])
		}
	}
	return left
}
