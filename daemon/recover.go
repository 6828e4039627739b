package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/faults"
	"github.com/gpuarb/gpuarb/inventory"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/procfacts"
	"github.com/gpuarb/gpuarb/shim"
	"github.com/gpuarb/gpuarb/statefile"
)

// recover takes up what the daemon before this one left in the state file: jobs,
// then sessions with their leases. Processes that live keep what they hold, and
// their pages are opened again through /proc; those that died meanwhile drain.
//
// Where the daemon is stopped meanwhile it leaves the file to the next one as it is.
func (d *Daemon) recover() {
	d.lock()
	defer d.unlock()
	if d.stopping {
		return
	}
	members := map[uint64][]*statefile.Session{}
	d.file.Sessions.Each(func(_ int, r *statefile.Session) { members[r.Job] = append(members[r.Job], r) })
	d.file.Jobs.Each(func(i int, r *statefile.Job) {
		if d.ctx.Err() == nil {
			d.recoverJob(i, r, members[r.ID])
		}
	})
	d.recoverPlaces()
	d.file.Sessions.Each(d.recoverJobOf)
	leases := map[uint32][]int{}
	d.file.Leases.Each(func(i int, l *statefile.Lease) { leases[l.Session] = append(leases[l.Session], i) })
	d.file.Threads.Each(func(i int, t *statefile.Thread) { d.knownThread(int(t.Lease), t.Maker.Thread, i) })
	taken := map[int]bool{}
	d.file.Sessions.Each(func(i int, r *statefile.Session) {
		if d.ctx.Err() != nil {
			return
		}
		if err := d.recoverSession(i, r, leases[uint32(i)], taken); err != nil {
			d.log.Warn("a session could not be taken up again", "client_pid", r.PID, "err", err)
			d.file.Sessions.Free(i)
			for _, li := range leases[uint32(i)] {
				taken[li] = false
			}
		}
	})
	if d.ctx.Err() != nil {
		return
	}
	d.file.Leases.Each(func(i int, _ *statefile.Lease) {
		if !taken[i] {
			d.forgetThreads(i)
			d.file.Leases.Free(i)
		}
	})
	for _, j := range d.jobs {
		d.dropJob(j)
		d.lookFor(j)
	}
	faults.At("recover.sessions")
	d.recoverLimits()
	d.arb.Tick(d.now()) // words that such a limit closes: nobody spends what he frees before the first second is over
	faults.At("recover.limits")
	d.log.Info("took up what the last daemon left", "jobs", len(d.jobs), "sessions", len(d.sessions))
}

func (d *Daemon) recoverJob(i int, r *statefile.Job, members []*statefile.Session) {
	if d.jobs[r.Token] != nil || r.ID == 0 || r.ID >= jobKey/2 {
		d.log.Warn("a job's record makes no sense", "job", r.ID)
		d.file.Jobs.Free(i)
		return
	}
	d.boundMin(r)
	j := &job{members: map[*session]struct{}{}, id: arbiter.JobID(r.ID), token: r.Token, pid: int(r.RunnerPID), start: r.RunnerStart, uid: r.UID,
		request: r.Request, open: true, index: i, pidfd: -1}
	proc, pidfd, gone := d.alive(int(r.RunnerPID), r.RunnerStart)
	if gone {
		proc = d.asMember(r, members)
	} else {
		j.by = procfacts.Started{PID: j.pid, StartTicks: j.start}
		if d.watchJob(j, pidfd) != nil {
			j.by = procfacts.Started{}
		}
	}
	asUser(&proc, r.UID, r.GID)
	var since time.Time
	if r.HeldSince != 0 {
		since = d.fromBootTime(int64(r.HeldSince) * int64(time.Second))
	}
	err := d.arb.RestoreJob(d.now(), arbiter.RestoredJob{ID: j.id, Since: since,
		Request: jobRequest(proc, r), Devices: d.devicesOf(r), Released: r.Released == 1})
	if err != nil {
		d.log.Warn("a job could not be taken up again", "job", r.ID, "err", err)
		d.file.Jobs.Free(i)
		return
	}
	d.knownJob(j)
}

// boundMin takes a reservation off a record that is more than any device has: it was never
// granted, the file has been damaged.
func (d *Daemon) boundMin(r *statefile.Job) {
	devices := d.inv.Devices()
	if r.Min == ipc.NoLimit || len(devices) == 0 {
		return
	}
	for _, dev := range devices {
		if total := uint64(usable(dev)); total == 0 || r.Min <= total { // 0: it is not known
			return
		}
	}
	d.log.Warn("a job's record reserves more than any device has: nothing is reserved", "job", r.ID, "bytes", r.Min)
	r.Min = ipc.NoLimit
}

// asMember is what is known of a runner that is dead, so that its job stays under the rule
// that it began under: its user's name and groups, and where it ran, are those of a process of
// the job that lives. What it was, nobody knows any more.
func (d *Daemon) asMember(r *statefile.Job, members []*statefile.Session) rules.Process {
	proc := rules.Process{UID: r.UID, GID: r.GID, Command: statefile.TextOf(&r.Command)}
	for _, m := range members {
		if m.UID != r.UID {
			continue
		}
		facts, pidfd, gone := d.alive(int(m.PID), m.StartTicks)
		if gone {
			continue
		}
		closeFD(pidfd)
		proc.User, proc.Groups = facts.User, facts.Groups
		proc.Cgroup, proc.Unit, proc.Container = facts.Cgroup, facts.Unit, facts.Container
		break
	}
	return proc
}

// recoverJobOf makes a session's job again where its own record made no sense, with the
// limits that the session's page shows. No other job may get its number before.
func (d *Daemon) recoverJobOf(_ int, r *statefile.Session) {
	if r.Job == 0 || r.Job >= jobKey/2 || d.jobByKey[r.Job|jobKey] != nil {
		return
	}
	proc, pidfd, gone := d.alive(int(r.PID), r.StartTicks)
	if gone {
		return
	}
	closeFD(pidfd)
	page := findPage(int(r.PID), ipc.PageID{Dev: r.PageDev, Ino: r.PageInode})
	if page == nil {
		return
	}
	defer page.Close()
	if shown, err := ipc.ReadPage(page.FD()); err == nil {
		asUser(&proc, r.UID, r.GID)
		if err := d.remakeJob(arbiter.JobID(r.Job), ipc.NewToken(), proc, shown); err != nil {
			d.log.Warn("a job cannot be made again", "job", r.Job, "err", err)
		}
	}
}

// alive returns the facts and a pidfd of a process that still is the one with this start
// time. Where that cannot be asked it is: its facts are then what the record says, and the
// pidfd is −1.
func (d *Daemon) alive(pid int, start uint64) (proc rules.Process, pidfd int, gone bool) {
	if pidfd, gone = d.stillThere(pid, start); gone {
		return proc, -1, true
	}
	var f procfacts.Facts
	err := d.spare.lend(func() (err error) { f, err = d.inv.Facts(pid); return err })
	switch {
	case errors.Is(err, procfacts.ErrGone), err == nil && f.StartTicks != start:
		closeFD(pidfd)
		return proc, -1, true
	case err != nil:
		d.log.Warn("little is known of a program that runs: rules for its name, unit or group do not meet it", "client_pid", pid, "err", err)
		return rules.Process{PID: pid, StartTicks: start}, pidfd, false
	}
	return process(f, pid), pidfd, false
}

// recoverSession makes a session of a record and of its leases' records.
func (d *Daemon) recoverSession(i int, r *statefile.Session, leases []int, taken map[int]bool) error {
	if d.sessions[r.Token] != nil {
		return errors.New("its token is another's")
	}
	proc, pidfd, dead := d.alive(int(r.PID), r.StartTicks)
	if dead {
		proc = rules.Process{PID: int(r.PID), StartTicks: r.StartTicks}
	}
	asUser(&proc, r.UID, r.GID)
	s := &session{token: r.Token, kind: ipc.KindShim, job: arbiter.JobID(r.Job), record: r, index: i,
		peer: identity{PID: int(r.PID), StartTicks: r.StartTicks, UID: r.UID, GID: r.GID, pidfd: pidfd},
		run:  r.Job != 0, conns: map[*ipc.Conn]struct{}{}}
	if !dead {
		s.page = findPage(s.peer.PID, ipc.PageID{Dev: r.PageDev, Ino: r.PageInode})
		s.mapped.Store(true)
	}
	if d.jobByKey[uint64(s.job)|jobKey] == nil { // its number may be another's by now
		s.job = 0
	}
	s.caller = d.arb.CallerIn(s.job, proc)
	req := arbiter.RestoredSession{Process: proc, Job: s.job, Streams: int(r.Streams),
		Max: sizeWish(r.Max, r.MaxPerMille), OnFull: onFullOf(r.OnFull),
		Slots: int(r.Slots), SlotScope: scopeOf(r.SlotScope), StreamReserve: reserveOf(r.StreamReserve)}
	var known []*shim.Lease
	for _, li := range leases {
		l := d.file.Leases.At(li)
		dev, ok := d.deviceByUUID(l.UUID)
		if !ok || l.Slot >= ipc.PageSlots || s.leaseAt(l.Slot) != nil || s.leaseOn(dev.Index) != nil {
			continue // the device has gone, and what was held there with it
		}
		d.recoverLease(s, l, li, dev)
		known, taken[li] = append(known, s.leases[l.Slot]), true
		req.Leases = append(req.Leases, arbiter.RestoredLease{Device: dev.Index, Granted: accounting.Bytes(l.Granted),
			Streams: int(l.Streams), Contexts: int(l.Contexts), Peak: accounting.Bytes(l.Peak),
			Opened: time.Unix(0, l.OpenedAt), Unverified: s.page == nil && !dead, Makers: d.makersOf(li, l),
			Lost: l.Device&statefile.LeaseLost != 0})
	}
	return d.restore(s, req, known, dead)
}

// recoverLease finishes what was under way in a lease, and holds its record to what
// can be: the file may have been damaged.
func (d *Daemon) recoverLease(s *session, l *statefile.Lease, index int, dev inventory.Device) {
	var epoch uint16
	var streams uint64
	if s.page != nil && s.page.Guard(func() {
		epoch = ipc.Word(s.page.Word(l.Slot).Load()).Epoch()
		streams = s.page.Streams(l.Slot).Load()
	}) != nil {
		_ = s.page.Close()
		s.page = nil
	}
	l.Recover(epoch, s.page != nil)
	faults.At("recover.lease")
	if total := uint64(usable(dev)); total != 0 {
		l.Granted, l.Peak = min(l.Granted, total), min(l.Peak, total)
	}
	if n, lent := ipc.StreamsIn(streams); lent {
		l.Streams = uint32(n)
	}
	l.Streams, l.Contexts = min(l.Streams, maxClaimed), min(l.Contexts, maxClaimed)
	if l.Device&statefile.LeaseLost != 0 {
		l.Granted, l.Streams, l.Contexts = 0, 0, 0
	}
	s.setLease(&shim.Lease{Device: dev.Index, Record: l, Index: index})
}

// restore makes a session known everywhere again. The lock is held.
func (d *Daemon) restore(s *session, req arbiter.RestoredSession, leases []*shim.Lease, dead bool) error {
	id, ids, err := d.arb.Restore(d.now(), req)
	if err != nil {
		d.release(s)
		return err
	}
	s.id = id
	for n, l := range leases {
		l.ID = ids[n]
		d.words.Add(l, s.page)
	}
	d.known(s)
	if !dead {
		s.peer.pidfd, err = d.watched(s.peer.pidfd, uint64(id))
	}
	if dead || err != nil {
		d.endSession(s)
		return nil
	}
	d.refresh(s)
	return nil
}

// refresh has the words of a session show what the arbiter thinks of its leases.
func (d *Daemon) refresh(s *session) {
	for l := range s.open() {
		if info, err := d.arb.Attach(d.now(), s.id, l.Device); err == nil {
			d.words.Limit(l.ID, info.Budget)
			d.words.Flag(l.ID, info.Closed, info.Closed || info.Notify)
		}
	}
	d.show(s)
}

// findPage opens a live process's page again: through a descriptor that it still
// has, else through its mapping, which only root may follow. nil: neither.
func findPage(pid int, id ipc.PageID) *ipc.LeasePage {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	paths := linksTo(filepath.Join(proc, "fd"), &id)
	paths = append(paths, linksTo(filepath.Join(proc, "map_files"), &id)...)
	for _, path := range paths {
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		if page := openPage(fd, id); page != nil {
			return page
		}
	}
	return nil
}

// linksTo lists the links in a folder of /proc that lead to the page with this identity,
// or to any page.
func linksTo(dir string, id *ipc.PageID) (paths []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		target, err := os.Readlink(path)
		if err != nil || !strings.Contains(target, "memfd:"+ipc.PageName) {
			continue
		}
		var st unix.Stat_t
		if id == nil || unix.Stat(path, &st) == nil && st.Ino == id.Ino {
			paths = append(paths, path)
		}
	}
	return paths
}
