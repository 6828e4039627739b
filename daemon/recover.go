package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/inventory"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/statefile"
)

// recover takes up what the daemon before this one left in the state file: jobs,
// then sessions with their leases. Processes that live keep what they hold, and
// their pages are opened again through /proc; those that died meanwhile drain.
func (d *Daemon) recover() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.file.Jobs.Each(d.recoverJob)
	leases := map[uint32][]int{}
	d.file.Leases.Each(func(i int, l *statefile.Lease) { leases[l.Session] = append(leases[l.Session], i) })
	taken := map[int]bool{}
	d.file.Sessions.Each(func(i int, r *statefile.Session) {
		if err := d.recoverSession(i, r, leases[uint32(i)], taken); err != nil {
			d.log.Warn("a session could not be taken up again", "client_pid", r.PID, "err", err)
			d.file.Sessions.Free(i)
		}
	})
	d.file.Leases.Each(func(i int, _ *statefile.Lease) {
		if !taken[i] {
			d.file.Leases.Free(i)
		}
	})
	d.dropJobs()
	d.drainEvents()
	d.log.Info("took up what the last daemon left", "jobs", len(d.jobs), "sessions", len(d.sessions))
}

func (d *Daemon) recoverJob(i int, r *statefile.Job) {
	j := &job{id: arbiter.JobID(r.ID), token: r.Token, uid: r.UID, index: i, pidfd: -1}
	proc, pidfd, err := d.alive(int(r.RunnerPID), r.RunnerStart)
	if err != nil {
		proc = arbiter.Process{UID: r.UID, GID: r.GID, Command: statefile.TextOf(&r.Command)}
		j.closed = true
	} else if d.watchJob(j, pidfd) != nil {
		j.closed = true
	}
	proc.UID, proc.GID = r.UID, r.GID
	err = d.arb.RestoreJob(time.Now(), arbiter.RestoredJob{ID: j.id, Closed: j.closed,
		Request: arbiter.JobRequest{Process: proc, Streams: int(r.Streams), PerProcess: r.PerProcess == 1,
			Command: statefile.TextOf(&r.Command), Max: wishes(ipc.HelloRequest{Memory: r.Max, Share: r.MaxPerMille})}})
	if err != nil {
		d.log.Warn("a job could not be taken up again", "job", r.ID, "err", err)
		d.file.Jobs.Free(i)
		return
	}
	d.jobs[j.token], d.jobByKey[uint64(j.id)|jobKey] = j, j
}

// alive returns the facts and a pidfd of a process that still is the one with
// this start time.
func (d *Daemon) alive(pid int, start uint64) (arbiter.Process, int, error) {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return arbiter.Process{}, -1, fmt.Errorf("process %d: %w", pid, err)
	}
	f, err := d.inv.Facts(pid)
	if err == nil && f.StartTicks != start {
		err = inventory.ErrGone
	}
	if err != nil {
		closeFD(pidfd)
		return arbiter.Process{}, -1, fmt.Errorf("process %d: %w", pid, err)
	}
	return process(f, pid), pidfd, nil
}

// recoverSession makes a session of a record and of its leases' records.
func (d *Daemon) recoverSession(i int, r *statefile.Session, leases []int, taken map[int]bool) error {
	proc, pidfd, err := d.alive(int(r.PID), r.StartTicks)
	dead := err != nil
	if dead {
		proc = arbiter.Process{PID: int(r.PID), StartTicks: r.StartTicks}
	}
	proc.UID, proc.GID = r.UID, r.GID
	s := &session{token: r.Token, kind: ipc.KindShim, job: arbiter.JobID(r.Job), record: r, index: i,
		peer: identity{PID: int(r.PID), StartTicks: r.StartTicks, UID: r.UID, GID: r.GID, pidfd: pidfd},
		run:  r.Job != 0, conns: map[*ipc.Conn]struct{}{}}
	if !dead {
		s.page = findPage(s.peer.PID, ipc.PageID{Dev: r.PageDev, Ino: r.PageInode})
		s.mapped.Store(s.page != nil)
	}
	req := arbiter.RestoredSession{Process: proc, Job: s.job, Streams: int(r.Streams),
		Max: wishes(ipc.HelloRequest{Memory: r.Max, Share: r.MaxPerMille})}
	var known []int
	for _, li := range leases {
		l := d.file.Leases.At(li)
		dev, ok := d.deviceByUUID(l.UUID)
		if !ok || l.Slot >= ipc.PageSlots {
			continue // the device has gone, and what was held there with it
		}
		var epoch uint16
		if s.page != nil {
			epoch = ipc.Word(s.page.Word(l.Slot).Load()).Epoch()
		}
		l.Recover(r, li, epoch, s.page != nil)
		known, taken[li] = append(known, li), true
		s.leases[l.Slot] = leaseRef{device: dev.Index, open: true}
		req.Leases = append(req.Leases, arbiter.RestoredLease{Device: dev.Index, Granted: accounting.Bytes(l.Granted),
			Streams: int(l.Streams), Contexts: int(l.Contexts), Peak: accounting.Bytes(l.Peak),
			Opened: time.Unix(0, l.OpenedAt), Unverified: s.page == nil && !dead})
	}
	return d.restore(s, req, known, dead)
}

// restore makes a session known everywhere again. The lock is held.
func (d *Daemon) restore(s *session, req arbiter.RestoredSession, records []int, dead bool) error {
	id, ids, err := d.arb.Restore(time.Now(), req)
	if err != nil {
		d.release(s)
		return err
	}
	s.id = id
	for n, li := range records {
		l := d.file.Leases.At(li)
		s.leases[l.Slot].id = ids[n]
		d.words.Add(ids[n], s.page, s.record, l, li)
	}
	d.sessions[s.token], d.byKey[uint64(id)] = s, s
	d.byPID[s.peer.PID]++
	if dead || d.reaper.Add(s.peer.pidfd, uint64(id)) != nil {
		d.endSession(s)
		return nil
	}
	d.refresh(s)
	return nil
}

// refresh has the words of a session show what the arbiter thinks of its leases.
func (d *Daemon) refresh(s *session) {
	for _, l := range s.leases {
		if !l.open {
			continue
		}
		if info, err := d.arb.Attach(time.Now(), s.id, l.device); err == nil {
			d.words.Limit(l.id, info.Budget)
			d.words.Flag(l.id, info.Closed, info.Closed)
		}
	}
}

// takePage gives a session whose page could not be opened again the one that the
// client sends, if it is the one that was made for it; else a new one, which
// fresh tells. What the client says that it uses is believed up to what was
// granted; the rest is its credit.
func (d *Daemon) takePage(s *session, req *ipc.ResumeRequest, fd int) (fresh bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	want := ipc.PageID{Dev: s.record.PageDev, Ino: s.record.PageInode}
	if fd >= 0 {
		if own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3); err == nil {
			if s.page, err = ipc.OpenPage(own, want); err != nil {
				s.page = nil
				closeFD(own)
			}
		}
	}
	if s.page == nil {
		if s.page, err = ipc.NewPage(); err != nil {
			return false, err
		}
		fresh = true
		s.record.PageDev, s.record.PageInode = s.page.ID().Dev, s.page.ID().Ino
	}
	for _, rl := range req.Leases[:req.Count] {
		l, err := s.lease(rl.Slot)
		if err != nil {
			continue
		}
		if record, _ := d.words.Record(l.id); fresh && record != nil {
			idle := record.Granted - min(rl.Used, record.Granted)
			s.page.Word(rl.Slot).Store(uint64(ipc.MakeWord(idle, 0, 0)))
			s.page.Low(rl.Slot).Store(uint64(ipc.MakeWord(idle, 0, 0)))
		}
		d.words.SetPage(l.id, s.page)
	}
	d.refresh(s)
	return fresh, nil
}

// adopt makes a session of what a client says that nothing of ours confirms: its
// own sums, bounded by the devices, unverified until the devices agree.
func (d *Daemon) adopt(c *ipc.Conn, req *ipc.ResumeRequest) (*session, error) {
	proc, err := d.facts(c.Peer())
	if err != nil {
		return nil, err
	}
	page, err := ipc.NewPage()
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s, err := d.addSession(c, proc, req.Hello, page, ipc.NewToken())
	if err != nil {
		_ = page.Close()
		return nil, err
	}
	s.conns[c] = struct{}{}
	for _, rl := range req.Leases[:req.Count] {
		if err := d.adoptLease(s, rl); err != nil {
			d.log.Warn("a lease could not be taken up again", "client_pid", s.peer.PID, "err", err)
		}
	}
	d.refresh(s)
	d.drainEvents()
	return s, nil
}

// adoptLease opens a lease with the client's own sum.
func (d *Daemon) adoptLease(s *session, rl ipc.ResumeLease) error {
	dev, ok := d.deviceByUUID(rl.Device)
	if !ok || rl.Slot >= ipc.PageSlots || s.leases[rl.Slot].open || s.slotOf(dev.Index) >= 0 {
		return fmt.Errorf("slot %d, device %x: not a lease that can be", rl.Slot, rl.Device)
	}
	used := accounting.Bytes(rl.Used)
	if total := usable(dev); total != 0 {
		used = min(used, total)
	}
	id, err := d.arb.Adopt(time.Now(), s.id, arbiter.RestoredLease{Device: dev.Index, Granted: used,
		Streams: int(rl.Streams), Contexts: int(rl.Contexts), Unverified: true})
	if err != nil {
		return err
	}
	index, record, err := d.file.Leases.New()
	if err != nil {
		return err
	}
	*record = statefile.Lease{Session: uint32(s.index), Slot: rl.Slot, Device: uint32(dev.Index), UUID: dev.UUIDBytes,
		Granted: uint64(used), Peak: uint64(used), Streams: rl.Streams, Contexts: rl.Contexts, OpenedAt: time.Now().UnixNano()}
	d.file.Leases.Commit(index)
	s.leases[rl.Slot] = leaseRef{id: id, device: dev.Index, open: true}
	d.words.Add(id, s.page, s.record, record, index)
	return nil
}

// findPage opens a live process's page again: through a descriptor that it still
// has, else through its mapping, which only root may follow. nil: neither.
func findPage(pid int, id ipc.PageID) *ipc.LeasePage {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	paths := linksTo(filepath.Join(proc, "fd"), id)
	paths = append(paths, linksTo(filepath.Join(proc, "map_files"), id)...)
	for _, path := range paths {
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		page, err := ipc.OpenPage(fd, id)
		if err == nil {
			return page
		}
		closeFD(fd)
	}
	return nil
}

// linksTo lists the links in a folder of /proc that lead to the page with this identity.
func linksTo(dir string, id ipc.PageID) (paths []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		target, err := os.Readlink(path)
		if err != nil || !strings.Contains(target, "memfd:"+pageName) {
			continue
		}
		var st unix.Stat_t
		if unix.Stat(path, &st) == nil && st.Ino == id.Ino {
			paths = append(paths, path)
		}
	}
	return paths
}
