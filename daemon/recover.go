package daemon

// This file recovers jobs, and sessions with their leases, from the state file. start.go calls it. savedprocesses.go
// reads the processes before; recoverqueue.go recovers waiting requests.

import (
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
	"github.com/gpuarb/gpuarb/internal/faults"
	"github.com/gpuarb/gpuarb/internal/procfacts"
	"github.com/gpuarb/gpuarb/internal/statefile"
	"github.com/gpuarb/gpuarb/ipc"
)

// recover reads the limits, jobs, sessions with leases, and waiting requests that the last daemon recorded, and
// continues them. Live processes keep what they hold, and their lease pages are opened again through /proc. Leases of
// dead processes drain. No limit is checked: sums may exceed limits, and until they have fallen nothing is granted.
//
// First it reads the facts of all recorded processes, without the daemon's lock, because /proc may hang. If the
// daemon is stopped meanwhile, the file stays unchanged for the next daemon.
func (d *Daemon) recover() {
	if d.file.HasSuspensions() {
		d.endLeftHooks()
	}
	saved := d.readProcesses()
	d.lock()
	defer d.unlock()
	if d.stopping() {
		for _, x := range saved.sessions {
			d.release(x.session)
		}
		return
	}
	d.recoverLimitsLocked()
	d.arb.Restore(d.now(), func() { d.recoverRecordsLocked(saved) })
	d.recoverTicketsLocked(saved)
	faults.At("recover.suspension")
	d.arb.Tick(d.now()) // close credit words above limits now, because clients must not reuse freed credit before the first tick
	faults.At("recover.limits")
	d.log.Info("took up what the last daemon left", "jobs", len(d.jobs), "sessions", len(d.sessions))
}

// recoverRecordsLocked recovers jobs, and then sessions.
func (d *Daemon) recoverRecordsLocked(saved *savedProcesses) {
	sessions, members := d.recoverableLocked(saved), map[uint64][]*recovered{}
	for _, x := range sessions {
		members[x.record.Job] = append(members[x.record.Job], x)
	}
	done := d.recoverBindingsLocked()
	d.file.Jobs.Each(func(i int, _ *statefile.Job) { d.recoverJobsLocked(i, saved, members, done) })
	for _, x := range sessions {
		d.recoverJobOfLocked(x)
	}
	d.recoverSuspensionsLocked(saved)
	for _, x := range sessions {
		d.recoverSessionLocked(x, saved)
	}
	d.applyLocked(procfacts.Started{})
	d.encloseRecoveredLocked()
	for _, j := range d.jobs {
		d.queueSearchLocked(j)
	}
	faults.At("recover.sessions")
	d.dropOrphanLimitsLocked()
}

// recoverableLocked returns the sessions that can be recovered, each with its leases. It frees the records of other
// sessions, and of leases without a session.
func (d *Daemon) recoverableLocked(saved *savedProcesses) (all []*recovered) {
	byIndex := map[uint32]*recovered{}
	for _, x := range saved.sessions {
		if barred := d.barred[startedOf(x.peer)]; barred || d.sessions[x.token] != nil {
			if !barred {
				d.log.Warn("a session could not be taken up again: its token is another's", "client_pid", x.peer.PID)
			}
			d.release(x.session)
			d.file.Sessions.Free(x.index)
			continue
		}
		if x.proc, x.life.pidfd, x.ended = saved.open(d, startedOf(x.peer)); x.ended {
			d.release(x.session)
			x.proc = rules.Process{PID: x.peer.PID, StartTicks: x.peer.StartTicks}
			if s := saved.suspensionOfProcess(x.peer); s != nil {
				x.proc = s.Process
			}
		}
		x.mapped.Store(!x.ended)
		setRecordedUser(&x.proc, x.peer.UID, x.peer.GID, x.ended)
		x.peer.Privileged, x.peer.Namespace = x.proc.Privileged, x.proc.Namespace
		all, byIndex[uint32(x.index)] = append(all, x), x
		d.sessions[x.token] = x.session
	}
	d.file.Threads.Each(func(i int, t *statefile.Thread) { d.indexThreadLocked(int(t.Lease), t.Maker.Thread, i) })
	d.file.Leases.Each(func(i int, l *statefile.Lease) {
		if x := byIndex[l.Session]; x != nil {
			x.leases = append(x.leases, i)
		} else {
			d.freeLeaseLocked(i)
		}
	})
	return all
}

// recoverJobsLocked recovers the job in record i. Before that it recovers the jobs of the closed bindings around it. It skips jobs whose
// records are in done, and adds the records of the jobs that it recovers.
func (d *Daemon) recoverJobsLocked(i int, saved *savedProcesses, members map[uint64][]*recovered, done map[int]bool) {
	if done[i] {
		return
	}
	done[i] = true
	r := d.file.Jobs.At(i)
	if at := d.closedAroundLocked(r); at >= 0 {
		d.recoverJobsLocked(at, saved, members, done)
	}
	d.recoverJobLocked(i, r, saved, members[r.ID])
}

// recoverJobLocked recovers a job from its record. members are the sessions of the job.
func (d *Daemon) recoverJobLocked(i int, r *statefile.Job, saved *savedProcesses, members []*recovered) {
	if d.jobs[r.Token] != nil || r.ID == 0 || r.ID >= maxJobID {
		d.log.Warn("a job's record makes no sense", "job", r.ID)
		d.file.Jobs.Free(i)
		return
	}
	if d.barred[procfacts.Started{PID: int(r.RunnerPID), StartTicks: r.RunnerStart}] {
		d.file.Jobs.Free(i)
		return
	}
	d.boundMinLocked(r)
	j := newJob(i, r)
	d.applyLocked(j.runner)
	j.open = true
	proc, pidfd, gone := saved.open(d, j.runner)
	if gone {
		proc = runnerFromMembers(r, members)
		if s := saved.suspensionOfJob(r); s != nil {
			proc = s.Process
		}
	} else if d.watchJob(j, j.runner, pidfd) != nil {
		j.anchor.Started = procfacts.Started{}
	}
	leftBehind := ""
	if r.Released == jobCommandEnded && !gone {
		leftBehind = wording.Process(proc.Exe, proc.Command, "", proc.PID)
	}
	if !gone {
		setRecordedUser(&proc, r.UID, r.GID, false)
	}
	j.namespace = proc.Namespace
	var since time.Time
	if r.HeldSince != 0 {
		since = d.fromBootTime(int64(r.HeldSince) * int64(time.Second))
	}
	request := jobRequest(proc, r)
	j.around = d.bindingOfLocked(proc.Cgroups)
	if at := d.closedAroundLocked(r); at >= 0 && d.jobs[d.file.Jobs.At(at).Token] != nil {
		j.around = d.jobs[d.file.Jobs.At(at).Token]
	}
	d.noteAroundLocked(j)
	request.Around = idOf(j.around)
	err := d.arb.RestoreJob(d.now(), arbiter.RestoredJob{ID: j.id, Since: since,
		Request: request, Devices: d.indicesOf(r.GivenDevices()), Keeps: d.indicesOf(r.SlotDevices()), Released: r.Released == jobReleased,
		CommandEnded: r.Released == jobCommandEnded || gone, StillRuns: leftBehind})
	if err != nil {
		d.log.Warn("a job could not be taken up again", "job", r.ID, "err", err)
		j.anchor.unwatch(d.reaper)
		d.file.Jobs.Free(i)
		return
	}
	d.enterJobLocked(j)
}

// runnerFromMembers returns facts for a dead runner, so that the same rule applies to its job as before. It copies
// user name, groups, cgroups and privileges from a live process of the job. Without such a process the runner is not
// privileged: root of a container, whose namespaces can no longer be read, must not gain privileges by a restart of
// the daemon.
func runnerFromMembers(r *statefile.Job, members []*recovered) rules.Process {
	proc := rules.Process{UID: r.UID, GID: r.GID, Command: statefile.TextOf(&r.Command)}
	if isAdmin(r.UID) {
		proc.Namespace = ^uint64(r.RunnerPID) // no namespace has this number; with 0, root could pass the rules by its user number
	}
	for _, m := range members {
		if !m.ended && m.peer.UID == r.UID {
			proc.User, proc.Groups = m.proc.User, m.proc.Groups
			proc.Privileged, proc.Namespace = m.proc.Privileged, m.proc.Namespace
			proc.Visible = m.proc.Visible
			proc.Cgroup, proc.AlsoIn, proc.Unit, proc.Container = m.proc.Cgroup, m.proc.AlsoIn, m.proc.Unit, m.proc.Container
			break
		}
	}
	return proc
}

// recoverJobOfLocked opens a session's job again, with the limits on the session's page, if the job's record was
// unusable. It must be called before a new job could get the number.
func (d *Daemon) recoverJobOfLocked(x *recovered) {
	if x.job == 0 || x.job >= maxJobID || d.jobByID[x.job] != nil || x.page == nil {
		return
	}
	if shown, err := ipc.ReadPage(x.page.FD()); err == nil {
		if err := d.remakeJobLocked(x.job, ipc.NewToken(), x.proc, shown); err != nil {
			d.log.Warn("a job cannot be made again", "job", x.job, "err", err)
		}
	}
}

// recoverSessionLocked adds a recorded session and its leases to the arbiter and to the daemon's tables.
func (d *Daemon) recoverSessionLocked(x *recovered, saved *savedProcesses) {
	s := x.session
	d.applyLocked(startedOf(s.peer))
	if d.jobByID[s.job] == nil { // the job was not recovered, and a later job may get its number
		s.job = 0
	}
	id, err := d.arb.RestoreSession(d.now(), s.request(x.proc))
	if err != nil {
		d.log.Warn("a session could not be taken up again", "client_pid", s.peer.PID, "err", err)
		d.release(s)
		delete(d.sessions, s.token)
		d.file.Sessions.Free(s.index)
		for _, i := range x.leases {
			d.freeLeaseLocked(i)
		}
		return
	}
	s.id, s.caller = id, d.arb.CallerIn(s.job, x.proc)
	d.enterSessionLocked(s)
	for _, i := range x.leases {
		d.recoverLeaseLocked(x, i)
	}
	if out := saved.suspensionOfProcess(s.peer); out != nil && s.job == 0 {
		d.recoverSuspensionLocked(out, d.arb.JobOf(id))
	}
	if !x.ended {
		err = d.watchSession(s, s.life.pidfd)
	}
	if x.ended || err != nil {
		d.endSessionLocked(s)
		return
	}
	d.publishLimitsLocked(s)
}

// recoverLeaseLocked recovers a lease of a session from its record. It frees an unusable record: the file is damaged,
// or the device is gone, and with it the memory.
func (d *Daemon) recoverLeaseLocked(x *recovered, i int) {
	s, l := x.session, d.file.Leases.At(i)
	dev, ok := d.deviceByUUID(l.UUID)
	if !ok || l.Slot >= ipc.PageSlots || s.leaseAt(l.Slot) != nil || s.leaseOn(dev.Index) != nil {
		d.freeLeaseLocked(i)
		return
	}
	s.repairLease(l, uint64(d.arb.Total(dev.Index)))
	held := d.words.Lease(l, i, dev.Index, s.page)
	_, err := d.arb.RestoreLease(d.now(), s.id, arbiter.RestoredLease{Device: dev.Index, Granted: accounting.Bytes(l.Granted), Away: accounting.Bytes(l.Away),
		Streams: int(l.Streams), Contexts: int(l.Contexts), Peak: accounting.Bytes(l.Peak),
		Opened: time.Unix(0, l.OpenedAt), Unverified: s.page == nil && !x.ended, Makers: d.makersOfLocked(i),
		Lost: l.Device&statefile.LeaseLost != 0}, held)
	if err != nil {
		d.log.Warn("a lease could not be taken up again", "client_pid", s.peer.PID, "err", err)
		d.freeLeaseLocked(i)
		return
	}
	d.enterLeaseLocked(s, held)
}

// repairLease completes a change of a lease's record that the last daemon had announced when it died. It also lowers
// impossible figures. total is the size of the device in bytes; 0: not known.
func (s *session) repairLease(l *statefile.Lease, total uint64) {
	var epoch uint16
	var streams uint64
	if s.page != nil && s.page.Guard(func() {
		epoch = ipc.CreditWord(s.page.CreditWord(l.Slot).Load()).Epoch()
		streams = s.page.Streams(l.Slot).Load()
	}) != nil {
		for held := range s.open() {
			held.SetPage(nil)
		}
		_ = s.page.Close()
		s.page = nil
	}
	l.Recover(epoch, s.page != nil)
	faults.At("recover.lease")
	if total != 0 {
		l.Away = min(l.Away, l.Granted, ipc.CreditLimit)
		l.Granted, l.Peak = min(l.Granted, total+l.Away), min(l.Peak, total+l.Away)
	}
	if n, lent := ipc.StreamCount(streams); lent {
		l.Streams = uint32(n)
	}
	l.Streams, l.Contexts = min(l.Streams, maxClaimed), min(l.Contexts, maxClaimed)
	if l.Device&statefile.LeaseLost != 0 {
		l.Granted, l.Streams, l.Contexts = 0, 0, 0
	}
}
