package daemon

// This file recovers the jobs of cgroups (bindings) from the state file. recover.go calls it before it recovers other jobs, because
// those may be inside a binding. A binding has two records: that of the job, and that of the cgroup, which has a copy of the first.

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

// recoverBindingsLocked recovers all jobs of cgroups, outer jobs before the jobs inside them. It frees the records of bindings that
// cannot be recovered. It returns the indices of the jobs' records that it has used.
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
	d.dropLostBindingLimitsLocked()
	return done
}

// recoverBindingLocked recovers the binding in record i, and returns the index of the job's record. ok: the job was recovered.
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
	d.recoverBindingLimitsLocked(r)
	d.boundMinLocked(r)
	b := d.bindingIn(i)
	j := newJob(index, r)
	j.open, j.bound, j.around, j.namespace = true, b, d.aroundLocked(path), home().PID
	r.Flags |= jobBound // an earlier daemon did not set it
	d.noteAroundLocked(j)
	var since time.Time
	if b.opened = d.now(); r.HeldSince != 0 {
		since = d.fromBootTime(int64(r.HeldSince) * int64(time.Second))
		b.opened = since
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

// bindingIn converts record i of the bindings.
func (d *Daemon) bindingIn(i int) *binding {
	row := d.file.Bindings.At(i)
	return &binding{path: row.PathOf(), folder: row.Folder, until: row.Until, idle: time.Duration(min(row.IdleMillis, maxWaitMillis)) * time.Millisecond,
		used: d.now(), lossOpen: row.Flags&ipc.BindLossOpen != 0, contexts: row.Flags&ipc.BindContextsInside != 0, allows: row.Flags & ipc.BindAllowsAll, container: row.ContainerOf(), row: i,
		came: row.Flags&statefile.BindingCame != 0, missed: row.Flags&statefile.BindingMissed != 0}
}

// boundProcess returns what the record of a cgroup's job says of the process that opened it. Only root opens such jobs, so that the process
// counts as privileged.
func (d *Daemon) boundProcess(path string, r *statefile.Job) rules.Process {
	return rules.Process{UID: r.UID, GID: r.GID, User: d.inv.UserName(r.UID), Privileged: true, Namespace: home().PID, Cgroup: path,
		Command: statefile.TextOf(&r.Command)}
}

// encloseRecoveredLocked puts the recovered jobs of programs inside the bindings in whose cgroups the programs run. It begins with the
// outer bindings.
func (d *Daemon) encloseRecoveredLocked() {
	paths := slices.SortedFunc(maps.Keys(d.bindings), func(x, y string) int { return strings.Count(x, "/") - strings.Count(y, "/") })
	for _, path := range paths {
		d.enterBindingLocked(d.bindings[path])
	}
}

// jobOfBindingLocked returns the index of the record of a binding's job. A daemon of an earlier version, which does not know bindings,
// may have freed that record. Then jobOfBindingLocked makes it again from the copy, with a new ID if another job has the old one by now.
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
	if highest >= maxJobID {
		return 0, false
	}
	index, record, err := d.file.Jobs.New()
	if err != nil {
		return 0, false
	}
	*record = row.Job
	if record.Live = 0; taken {
		record.ID = highest + 1
	}
	d.file.Jobs.Commit(index)
	return index, true
}

// boundMinLocked removes a reservation from a record if no device is large enough for it. Such a reservation was never
// granted: the file is damaged. It changes nothing if there is no device, or one of unknown size.
func (d *Daemon) boundMinLocked(r *statefile.Job) {
	if r.Min == ipc.NoLimit || len(d.devices()) == 0 {
		return
	}
	for _, dev := range d.devices() {
		if total := uint64(d.arb.Total(dev.Index)); total == 0 || r.Min <= total { // total 0: unknown
			return
		}
	}
	d.log.Warn("a job's record reserves more than any device has: nothing is reserved", "job", r.ID, "bytes", r.Min)
	r.Min = ipc.NoLimit
}
