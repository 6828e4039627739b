package daemon

// This file recovers the jobs of cgroups from the state file. recover.go calls it before it recovers other jobs, which
// may be inside one of these.

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/faults"
	"github.com/gpuarb/gpuarb/internal/statefile"
	"github.com/gpuarb/gpuarb/ipc"
)

// recoverBindingsLocked recovers all jobs of cgroups, those around others first. It frees records that make no sense.
// It returns the indices of the jobs' records.
func (d *Daemon) recoverBindingsLocked() map[int]bool {
	var rows []int
	d.file.Bindings.Each(func(i int, _ *statefile.Binding) { rows = append(rows, i) })
	depth := func(i int) int { return strings.Count(d.file.Bindings.At(i).PathOf(), "/") }
	slices.SortStableFunc(rows, func(x, y int) int { return cmp.Compare(depth(x), depth(y)) })
	done := make(map[int]bool)
	for _, i := range rows {
		if index, ok := d.recoverBindingLocked(i); ok {
			done[index] = true
		} else {
			d.file.Bindings.Free(i)
		}
		faults.At("recover.binding")
	}
	return done
}

// recoverBindingLocked recovers the job of one cgroup, and returns the index of the job's record.
func (d *Daemon) recoverBindingLocked(i int) (index int, ok bool) {
	row := d.file.Bindings.At(i)
	path := row.PathOf()
	if rules.CheckCgroup(path) != nil || d.bindings[path] != nil || row.Until > ipc.UntilIdle || row.Job.Token == (ipc.Token{}) {
		d.log.Warn("the record of a cgroup's job makes no sense", "cgroup", path)
		return 0, false
	}
	index, ok = d.jobOfBindingLocked(row)
	if !ok {
		d.log.Warn("the job of a cgroup could not be taken up again: there is no record free for it", "cgroup", path)
		return 0, false
	}
	r := d.file.Jobs.At(index)
	d.boundMinLocked(r)
	b := d.bindingIn(i)
	j := newJob(index, r)
	j.open, j.bound, j.around, j.namespace = true, b, d.aroundLocked(path), home().PID
	var since time.Time
	if r.HeldSince != 0 {
		since = d.fromBootTime(int64(r.HeldSince) * int64(time.Second))
	}
	err := d.arb.RestoreJob(d.now(), arbiter.RestoredJob{ID: j.id, Since: since, Request: d.boundRequestLocked(b, d.boundProcess(path, r), r, j.around),
		Devices: d.indicesOf(r.GivenDevices()), Keeps: d.indicesOf(r.SlotDevices())})
	if err != nil {
		d.log.Warn("the job of a cgroup could not be taken up again", "job", r.ID, "cgroup", path, "err", err)
		d.file.Jobs.Free(index)
		return 0, false
	}
	d.enterJobLocked(j)
	d.bindings[path] = j
	return index, true
}

// bindingIn returns the cgroup in a record.
func (d *Daemon) bindingIn(i int) *binding {
	row := d.file.Bindings.At(i)
	return &binding{path: row.PathOf(), folder: row.Folder, until: row.Until, idle: time.Duration(min(row.IdleMillis, maxWaitMillis)) * time.Millisecond,
		used: d.now(), lossOpen: row.Flags&ipc.BindLossOpen != 0, contexts: row.Flags&ipc.BindContextsInside != 0, allows: row.Flags & ipc.BindAllowsAll, container: row.ContainerOf(), row: i}
}

// boundProcess returns the facts of a recorded opener with which the job of a cgroup was opened.
func (d *Daemon) boundProcess(path string, r *statefile.Job) rules.Process {
	return rules.Process{UID: r.UID, GID: r.GID, User: d.inv.UserName(r.UID), Privileged: true, Namespace: home().PID, Cgroup: path,
		Command: statefile.TextOf(&r.Command)}
}

// encloseRecoveredLocked puts programs that run in the cgroups of bindings inside these, those around others first.
func (d *Daemon) encloseRecoveredLocked() {
	paths := slices.SortedFunc(maps.Keys(d.bindings), func(x, y string) int { return strings.Count(x, "/") - strings.Count(y, "/") })
	for _, path := range paths {
		d.enterBindingLocked(d.bindings[path])
	}
}

// jobOfBindingLocked returns the index of the record of a binding's job. If a daemon of an earlier version has dropped
// it, it is made again from the copy.
func (d *Daemon) jobOfBindingLocked(row *statefile.Binding) (index int, ok bool) {
	index, taken, highest := -1, false, row.Job.ID
	d.file.Jobs.Each(func(i int, r *statefile.Job) {
		highest = max(highest, r.ID)
		taken = taken || r.ID == row.Job.ID
		if r.Token == row.Job.Token && index < 0 {
			index = i
		}
	})
	if index >= 0 {
		return index, true
	}
	d.file.Sessions.Each(func(_ int, s *statefile.Session) { highest = max(highest, s.Job) })
	index, record, err := d.file.Jobs.New()
	if err != nil || highest >= maxJobID {
		return 0, false
	}
	*record = row.Job
	if record.Live = 0; taken {
		record.ID = highest + 1
	}
	d.file.Jobs.Commit(index)
	return index, true
}

// boundMinLocked removes a reservation from a record if it exceeds every device. Such a reservation was never
// granted: the file is damaged.
func (d *Daemon) boundMinLocked(r *statefile.Job) {
	if r.Min == ipc.NoLimit || len(d.devices()) == 0 {
		return
	}
	for _, dev := range d.devices() {
		if total := uint64(d.arb.Total(dev.Index)); total == 0 || r.Min <= total { // 0: not known
			return
		}
	}
	d.log.Warn("a job's record reserves more than any device has: nothing is reserved", "job", r.ID, "bytes", r.Min)
	r.Min = ipc.NoLimit
}
