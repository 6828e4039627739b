package figures

// This file sorts the rows of a snapshot and sums up users. The daemon calls Arrange after each
// copy.

import (
	"cmp"
	"slices"
)

// Arrange sorts the rows of a snapshot that was just copied, and adds up the usage of each user.
// The caller makes the snapshot under the daemon's lock, and calls Arrange once, without the lock,
// because with 16,384 leases it takes longer than the copy. It sorts leases by device and then by
// age, processes by PID, and jobs by number. Holders of a device are sorted by the time at which
// they got their first slot, and Arrange copies the owner of each from the row of its job.
func (s *Snapshot) Arrange() {
	s.Leases = sorted(s.Leases, func(x, y *LeaseState) int {
		return cmp.Or(cmp.Compare(x.Device, y.Device), x.Opened.Compare(y.Opened), cmp.Compare(x.ID, y.ID))
	})
	s.Processes = sorted(s.Processes, func(x, y *ProcessState) int { return cmp.Or(cmp.Compare(x.PID, y.PID), cmp.Compare(x.ID, y.ID)) })
	s.Jobs = sorted(s.Jobs, func(x, y *JobState) int { return cmp.Compare(x.ID, y.ID) })
	for i := range s.Devices {
		s.Devices[i].Holders = byJob(s.Devices[i].Holders)
		s.describe(s.Devices[i].Holders)
	}
	for i := range s.Budgets {
		b := &s.Budgets[i]
		slices.Sort(b.Jobs)
		b.Jobs = slices.Compact(b.Jobs)
	}
	s.sumUsers()
}

// byJob merges the rows of each job into one row. That row has the number of the job's slots, and
// the time at which the job got the oldest slot.
func byJob(slots []HolderState) (jobs []HolderState) {
	for _, slot := range sorted(slots, func(x, y *HolderState) int { return cmp.Or(cmp.Compare(x.Job, y.Job), x.Since.Compare(y.Since)) }) {
		if n := len(jobs); n > 0 && jobs[n-1].Job == slot.Job {
			jobs[n-1].Slots += slot.Slots
			continue
		}
		jobs = append(jobs, slot)
	}
	return sorted(jobs, func(x, y *HolderState) int { return cmp.Or(x.Since.Compare(y.Since), cmp.Compare(x.Job, y.Job)) })
}

// describe copies name, process, user and command of each holder of a slot from the row of its job.
// The rows of jobs must be sorted by number.
func (s *Snapshot) describe(holders []HolderState) {
	for i := range holders {
		h := &holders[i]
		at, found := slices.BinarySearchFunc(s.Jobs, h.Job, func(j JobState, id uint64) int { return cmp.Compare(j.ID, id) })
		if found {
			j := &s.Jobs[at]
			h.JobName, h.PID, h.UID, h.User, h.Command = j.Name, j.PID, j.UID, j.User, j.Command
		}
	}
}

// sorted returns a sorted copy of rows. Because rows are large, it sorts pointers and then copies
// each row once.
func sorted[T any](rows []T, order func(x, y *T) int) []T {
	if len(rows) == 0 {
		return rows
	}
	at := make([]*T, len(rows))
	for i := range rows {
		at[i] = &rows[i]
	}
	slices.SortFunc(at, order)
	to := make([]T, len(rows))
	for i, row := range at {
		to[i] = *row
	}
	return to
}

// sumUsers adds up the memory and the streams of each user from the leases of the user's jobs. In the job of a cgroup, each
// program counts for the user who runs it, if that user has a row.
func (s *Snapshot) sumUsers() {
	users := make(map[uint32]*UserState, len(s.Users))
	for i := range s.Users {
		users[s.Users[i].UID] = &s.Users[i]
	}
	of := make(map[uint64]*JobState, len(s.Jobs))
	for i := range s.Jobs {
		of[s.Jobs[i].ID] = &s.Jobs[i]
	}
	for i := range s.Leases {
		l := &s.Leases[i]
		j := of[l.Job]
		if j == nil {
			continue
		}
		u := users[j.UID]
		if j.Bound != "" && users[l.UID] != nil {
			u = users[l.UID]
		}
		if u != nil { // nil: the user came after the users were copied
			u.Used = u.Used.Plus(l.Used)
			u.Streams += l.Streams
		}
	}
}
