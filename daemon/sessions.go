package daemon

// This file has the life of a session and its leases in the daemon's tables and in the state file, until a dead
// process's memory is free. hello.go opens sessions; processend.go detects ends of processes; reclaim.go detects
// freed memory.

import (
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/daemon/inventory"
	"github.com/gpuarb/gpuarb/internal/faults"
	"github.com/gpuarb/gpuarb/internal/statefile"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/shim"
)

// enterSessionLocked adds a session to the daemon's tables.
func (d *Daemon) enterSessionLocked(s *session) {
	if len(d.sessions)+len(d.jobs) == 0 {
		d.wakeReaders()
	}
	d.sessions[s.token] = s
	d.sessionCounts.add(s.peer.PID, s.peer.UID)
	d.sessionsByPID[s.peer.PID] = append(d.sessionsByPID[s.peer.PID], s)
	if j := d.jobByID[s.job]; j != nil {
		j.members[s] = struct{}{}
		j.live++
	}
}

// watchSession ends a session when its process ends.
func (d *Daemon) watchSession(s *session, pidfd int) error {
	return s.life.watch(d.reaper, startedOf(s.peer), pidfd, func() { d.endSessionLocked(s) })
}

// openLeaseLocked opens a lease in the arbiter (by open), in the state file and in the client's page, or in none of
// them.
func (d *Daemon) openLeaseLocked(s *session, dev inventory.Device, slot uint32,
	open func(*shim.Lease) (arbiter.LeaseInfo, error)) (info arbiter.LeaseInfo, err error) {
	if err := d.leaseCounts.full(s.peer.PID, s.peer.UID, s.peer.Privileged); err != nil {
		return info, err
	}
	if slot >= ipc.PageSlots { // there is no free slot
		return info, refused(ipc.StatusTooMany, "a session can use %d devices", ipc.PageSlots)
	}
	index, record, err := d.file.Leases.New()
	if err != nil {
		return info, refused(ipc.StatusTooMany, "%d leases are open, the most of all users: end some of the programs (`gpuarb ps` lists them)", statefile.MaxLeases)
	}
	*record = statefile.Lease{Slot: slot, Session: uint32(s.index), Device: uint32(dev.Index), UUID: dev.UUIDBytes, OpenedAt: d.now().UnixNano()}
	l := d.words.Lease(record, index, dev.Index, s.page)
	if info, err = open(l); err != nil {
		d.file.Leases.Free(index)
		return info, err
	}
	faults.At("lease.opened")
	d.file.Leases.Commit(index)
	faults.At("lease.committed")
	d.enterLeaseLocked(s, l)
	return info, nil
}

// enterLeaseLocked adds a lease, which the arbiter has opened, to its session.
func (d *Daemon) enterLeaseLocked(s *session, l *shim.Lease) {
	for len(s.leases) <= int(l.Record.Slot) {
		s.leases = append(s.leases, nil)
	}
	s.leases[l.Record.Slot] = l
	d.leaseCounts.add(s.peer.PID, s.peer.UID)
}

// freeLeaseLocked frees the record of a lease.
func (d *Daemon) freeLeaseLocked(index int) {
	d.forgetThreadsLocked(index)
	d.file.Leases.Free(index)
}

// threadsLocked reports the number of threads on a session's page to the arbiter.
func (d *Daemon) threadsLocked(now time.Time, s *session) {
	if s.page == nil {
		return
	}
	var n uint32
	if s.page.Guard(func() { n = s.page.Threads().Load() }) == nil {
		d.arb.Threads(now, s.id, int(min(n, maxClaimed)))
	}
}

// memberEndedLocked removes an ended session from the count of its job.
func (d *Daemon) memberEndedLocked(s *session) {
	if j := d.jobByID[s.job]; j != nil {
		j.live--
		d.queueSearchLocked(j)
	}
}

// endSessionLocked ends a session whose process is dead, executed another program, or sent Bye. Its leases drain
// until the devices show that the memory is free.
func (d *Daemon) endSessionLocked(s *session) {
	if s.dead || d.stopping() {
		return
	}
	d.closeSessionLocked(s)
}

// closeSessionLocked marks a session as dead, and ends it in the arbiter and the reaper.
func (d *Daemon) closeSessionLocked(s *session) {
	s.dead, s.died = true, d.now()
	d.memberEndedLocked(s)
	faults.At("session.ending")
	d.arb.EndSession(d.now(), s.id)
	faults.At("session.ended")
	d.endLimitsLocked(s)
	s.life.unwatch(d.reaper) // no more events are needed
	for l := range s.open() {
		l.SetPage(nil)
		d.readers()[l.Device].drainLocked(s)
	}
	d.dropSessionLocked(s)
}

// endLimitsLocked drops the live limits of a process whose last session has ended. It does not wait until the memory is
// free, for two reasons: a session that the process opens meanwhile would be under these limits, and they may come from a
// page that the client had damaged.
func (d *Daemon) endLimitsLocked(s *session) {
	of := processOwner(s)
	if !slices.ContainsFunc(d.sessionsByPID[s.peer.PID], func(x *session) bool { return !x.dead && processOwner(x) == of }) {
		d.dropLimitsLocked(of)
	}
}

// forgetLocked drops a session and its leases at once. It does not wait until the devices show that the memory is
// free, because the process reports that memory in another session.
func (d *Daemon) forgetLocked(s *session) {
	leases := slices.Collect(s.open())
	d.closeSessionLocked(s)
	for _, l := range leases {
		d.readers()[l.Device].closeLeaseLocked(s)
	}
}

// drainLocked adds a dead session whose lease the device's reader watches until its memory is free. Its bytes can
// then be granted again. A driver frees a process's memory when the last descriptor of the device closes, which may
// be later than the process's death.
func (r *reader) drainLocked(s *session) {
	r.draining[s] = struct{}{}
	signal(r.wake)
}

// closeLeaseLocked closes a dead session's lease on the device, and the session if it was the last lease.
func (r *reader) closeLeaseLocked(s *session) {
	d := r.d
	delete(r.draining, s)
	d.arb.Gone(d.now(), s.id, r.index)
	l := s.leaseOn(r.index)
	d.forgetThreadsLocked(l.Index)
	faults.At("lease.closing")
	d.file.Leases.Free(l.Index)
	faults.At("lease.freed")
	d.leaseCounts.drop(s.peer.PID, s.peer.UID)
	s.leases[l.Record.Slot] = nil
	l.End()
	d.dropSessionLocked(s)
}

// dropSessionLocked removes a dead session that has no lease left.
func (d *Daemon) dropSessionLocked(s *session) {
	for range s.open() {
		return
	}
	d.file.Sessions.Free(s.index)
	faults.At("session.freed")
	delete(d.sessions, s.token)
	d.sessionCounts.drop(s.peer.PID, s.peer.UID)
	if of := slices.DeleteFunc(d.sessionsByPID[s.peer.PID], func(x *session) bool { return x == s }); len(of) > 0 {
		d.sessionsByPID[s.peer.PID] = of
	} else {
		delete(d.sessionsByPID, s.peer.PID)
		delete(d.keepers, s.peer.PID)
	}
	for _, c := range s.conns {
		c.Close()
	}
	if s.page != nil {
		_ = s.page.Guard(func() { s.page.Ended().Store(1) })
	}
	d.release(s)
	if j := d.jobByID[s.job]; j != nil {
		delete(j.members, s)
		d.dropJobLocked(j)
	}
}

// release closes the descriptors and the mapping of a session. The next daemon may continue the session.
func (d *Daemon) release(s *session) {
	closeFD(s.life.pidfd)
	s.life.pidfd = -1
	if s.page != nil {
		_ = s.page.Close()
		s.page = nil
	}
}

// refreshLocked writes the arbiter's figures and limits of a session's leases to the session's page.
func (d *Daemon) refreshLocked(s *session) {
	for l := range s.open() {
		d.arb.Refresh(l.ID)
	}
	d.publishLimitsLocked(s)
}
