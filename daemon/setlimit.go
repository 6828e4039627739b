package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/gpufs"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/procfacts"
	"github.com/gpuarb/gpuarb/shim"
)

// mayChange returns when the asker may change a limit, or returns the context's error if that ended before. A privileged asker
// never waits.
func (d *Daemon) mayChange(ctx context.Context, by asker) error {
	if by.privileged {
		return nil
	}
	return d.changes.Wait(ctx, by.uid)
}

// Set changes a limit that somebody wrote into the filesystem.
func (d *Daemon) Set(ctx context.Context, s gpufs.Setting) error {
	if d.mayChange(ctx, writer(s)) != nil {
		return unix.EINTR
	}
	err := d.set(s)
	if err != nil {
		whose := map[gpufs.Owner]string{gpufs.OfDevice: d.nameOfDevice(s.Device), gpufs.OfJob: fmt.Sprintf("job %d", s.Job), gpufs.OfUser: "user " + s.UserName, gpufs.OfCgroup: "cgroup " + s.Cgroup}[s.Of]
		d.refusedChange(s.UID, cmp.Or(whose, fmt.Sprintf("process %d", s.PID)), s.Name+"="+s.Value, err)
	}
	return err
}

// refusedChange logs who wanted to change what of whose, and why that was refused.
func (d *Daemon) refusedChange(uid uint32, whose, change string, err error) {
	d.log.Log(d.ctx, d.history.Level(uid), "a change of a limit was refused", "event", "limits_refused", "uid", uid, "of", whose, "change", change, "err", err)
}

func (d *Daemon) set(s gpufs.Setting) error {
	target := map[gpufs.Owner]uint32{gpufs.OfDevice: ipc.LimitDevice, gpufs.OfProcess: ipc.LimitProcess, gpufs.OfJob: ipc.LimitJob, gpufs.OfUser: ipc.LimitUser, gpufs.OfCgroup: ipc.LimitCgroup}[s.Of]
	r := ipc.LimitRequest{Target: target, ID: cmp.Or(s.Job, uint64(s.PID), uint64(s.User)), Device: uint32(s.Device)}
	if err := shim.SetLimit(&r, s.Name, s.Value); err != nil {
		return errors.Join(unix.EINVAL, err)
	}
	change := d.requested(writer(s), &r, s.Cgroup)
	if s.Cgroup != "" { // as in the kernel's own tree, the limit ends with the folder
		change.bind, change.folder = asBefore, d.watchFolderFor(writer(s), s.Cgroup)
	}
	d.lock()
	defer d.unlock()
	if d.stopping() { // what there is is the next daemon's
		return errors.Join(unix.ENOTCONN, errStopped)
	}
	began := d.now()
	defer func() { d.changes.Took(s.UID, d.now().Sub(began)) }()
	if err := d.changeLocked(limitOwner{target, r.ID, s.StartTicks}, cmp.Or(s.Cgroup, s.UserName), change); err != nil {
		return errors.Join(errnoOf(err), err)
	}
	return nil
}

// errnoOf says by which errno a write is refused.
func errnoOf(err error) unix.Errno {
	var refusal *arbiter.Result
	switch {
	case errors.As(err, &refusal), statusOf(err) == ipc.StatusTooMany:
		return unix.ENOSPC // a memory.min that has no room, or a change that could not be kept
	case errors.Is(err, rules.ErrPermission):
		return unix.EPERM
	case errors.Is(err, rules.ErrRange):
		return unix.EINVAL
	case errors.Is(err, arbiter.ErrNoJob), errors.Is(err, arbiter.ErrNoSession), errors.Is(err, arbiter.ErrNoDevice):
		return unix.ENODEV
	}
	return unix.EIO
}

// limit answers a Limit request.
func (cl *client) limit(r *ipc.LimitRequest) (ipc.Empty, error) { return cl.changeLimit(r, "") }

// limitCgroup answers a Cgroup request.
func (cl *client) limitCgroup(r *ipc.CgroupRequest) (ipc.Empty, error) {
	return cl.changeLimit(&r.Limit, r.Path.String())
}

// changeLimit changes a limit: of a cgroup, where there is a path.
func (cl *client) changeLimit(r *ipc.LimitRequest, cgroup string) (ipc.Empty, error) {
	by := askerOf(cl.conn.Peer())
	if cl.d.mayChange(cl.d.ctx, by) != nil {
		return ipc.Empty{}, refused(ipc.StatusShuttingDown, "the daemon is being stopped")
	}
	err := cl.d.limit(by, r, cgroup)
	switch {
	case errors.Is(err, arbiter.ErrNoJob):
		err = refused(ipc.StatusRange, "there is no job %d (any more); `gpuarb jobs` lists them", r.ID)
	case errors.Is(err, arbiter.ErrNoSession):
		err = refused(ipc.StatusRange, "process %d is no client of this daemon (any more); `gpuarb ps` lists those that hold something", r.ID)
	case errors.Is(err, arbiter.ErrNoRule):
		err = refused(ipc.StatusRange, "the configuration has no such rule (any more)")
	}
	return ipc.Empty{}, err
}

func (d *Daemon) limit(by asker, r *ipc.LimitRequest, cgroup string) error {
	uid, change := by.uid, d.requested(by, r, cgroup)
	name := cgroup
	if r.Target == ipc.LimitUser {
		name = d.inv.UserName(uint32(r.ID)) // the user database may be slow
	}
	d.lock()
	defer d.unlock()
	began := d.now()
	if by.start != 0 {
		d.applyLocked(procfacts.Started{PID: by.pid, StartTicks: by.start})
	}
	err := d.changeLocked(limitOwner{kind: r.Target, id: r.ID}, name, change)
	if err != nil {
		d.refusedChange(uid, d.whoseLimitLocked(r, name), change.String(), err)
	}
	d.changes.Took(uid, d.now().Sub(began)) // its cost counts as the user's
	return err
}

// whoseLimitLocked is whose limits a request is about, for people.
func (d *Daemon) whoseLimitLocked(r *ipc.LimitRequest, name string) string {
	switch r.Target {
	case ipc.LimitDevice:
		return d.nameOfDevice(int(r.Device))
	case ipc.LimitJob:
		return d.arb.JobName(arbiter.JobID(r.ID))
	case ipc.LimitUser:
		return "user " + name
	case ipc.LimitCgroup:
		return "cgroup " + name
	case ipc.LimitRule:
		if rule, ok := d.arb.Rule(r.ID); ok {
			return rule.Key.String()
		}
		return "a rule that is not there"
	}
	return fmt.Sprintf("process %d", r.ID)
}

// requested returns the change that is asked for, of a cgroup if a path is given. It must be called without the lock, because it
// asks the user database for the asker's name, and the kernel for the asker's cgroups.
func (d *Daemon) requested(by asker, r *ipc.LimitRequest, cgroup string) limitChange {
	change := changeOf(r.Set, shim.SizeOf(r.Max, r.MaxShare), shim.SizeOf(r.Min, r.MinShare), int(r.Streams), int(r.Slots))
	change.Device, change.UID, change.PID, change.Privileged, change.Namespace = rules.AllDevices, by.uid, by.pid, by.privileged, by.namespace
	change.Inside = cgroup != "" && cgroup != "/" && by.runsIn(cgroup)
	if r.Device != ipc.AllDevices {
		change.Device = int(r.Device)
	}
	if !change.Privileged {
		change.User = d.inv.UserName(by.uid)
	}
	if cgroup != "" && r.Set&ipc.SetWithFolder != 0 {
		change.bind, change.folder = toFolder, d.watchFolderFor(by, cgroup)
		if change.Inside { // a process in the cgroup must not turn a limit that stays into one that ends
			change.bind = asBefore
		}
	}
	return change
}

// changeOf is what a request, or a record of one, changes.
func changeOf(set uint32, most, least accounting.Size, streams, slots int) (change limitChange) {
	if set&ipc.SetMax != 0 {
		change.Max = &most
	}
	if set&ipc.SetMin != 0 {
		change.Min = &least
	}
	if set&ipc.SetStreams != 0 {
		change.Streams = &streams
	}
	if set&ipc.SetSlots != 0 {
		change.slots = &slots
	}
	return change
}

// changeLocked changes somebody's limits, shows that in the pages of whose they are, and writes it down. A user has a name, and a
// cgroup its path there. A process without a start is the one that has the PID now.
func (d *Daemon) changeLocked(of limitOwner, name string, change limitChange) error {
	if of.kind == ipc.LimitDevice && change.slots == nil {
		return nil
	}
	to, err := d.targetLocked(of, name, change)
	if err != nil {
		return err
	}
	if err := d.roomForLimitLocked(to, change.Change); err != nil {
		return err
	}
	if err := d.setLimitsLocked(of, name, change); err != nil {
		return err
	}
	if to.kind == ipc.LimitCgroup {
		d.keepCgroupLocked(to.id, name, change)
	}
	d.showTargetLocked(to)
	d.keepLimitLocked(to, change)
	if to.kind == ipc.LimitUser && !d.arb.UserLimited(uint32(to.id)) || to.kind == ipc.LimitCgroup && !d.arb.CgroupLimited(name) {
		d.forgetLimitsLocked(to.limitOwner)
	}
	if to.kind == ipc.LimitCgroup {
		d.dropCgroupLocked(to.id)
	}
	return nil
}

// targetLocked is where a change is kept, and an error where there is nobody whose limits could be changed, or may be by who asks.
func (d *Daemon) targetLocked(of limitOwner, name string, change limitChange) (target, error) {
	var err error
	switch of.kind {
	case ipc.LimitUser:
		of.start = ofNobody
	case ipc.LimitCgroup:
		of = limitOwner{of.kind, d.cgroupIDLocked(name), ofNobody}
		if err = d.roomForCgroupLocked(of.id); err == nil && change.bind == toFolder && change.folder == 0 && change.Privileged {
			err = rules.Wrong(rules.ErrRange, "cgroup %s has no folder that the limit could end with: without --with-folder the limit waits for it", name)
		}
	case ipc.LimitRule:
		rule, ok := d.arb.Rule(of.id)
		if !ok {
			return target{}, arbiter.ErrNoRule
		}
		of.start = rule.Says()
	case ipc.LimitDevice:
		of = limitOwner{kind: of.kind}
		if !change.Privileged {
			err = change.Denied("slots.max of %s: only root may change it", d.nameOfDevice(change.Device))
		}
	case ipc.LimitJob:
		if of.start = 0; d.jobByID[arbiter.JobID(of.id)] == nil { // a bare process's job is known by the process
			p, ok := d.arb.SoleProcess(arbiter.JobID(of.id))
			if !ok {
				return target{}, fmt.Errorf("job %d: %w", of.id, arbiter.ErrNoJob)
			}
			of = limitOwner{ipc.LimitProcess, uint64(p.PID), p.StartTicks}
		}
	case ipc.LimitProcess:
		sessions := d.sessionsOfProcessLocked(int(of.id), of.start)
		if len(sessions) == 0 {
			return target{}, fmt.Errorf("process %d: %w", of.id, arbiter.ErrNoSession)
		}
		of.start = sessions[0].peer.StartTicks
	}
	return target{of, int32(change.Device), !change.Privileged}, err
}

// setLimitsLocked has the arbiter change somebody's limits.
func (d *Daemon) setLimitsLocked(of limitOwner, name string, change limitChange) error {
	now := d.now()
	switch of.kind {
	case ipc.LimitDevice:
		return d.arb.SetSlots(now, change.Device, *change.slots, arbiter.Changer{UID: change.UID, PID: change.PID, Again: change.Again})
	case ipc.LimitJob:
		return d.arb.SetJobLimits(now, arbiter.JobID(of.id), change.Change)
	case ipc.LimitUser:
		return d.arb.SetUserLimits(now, uint32(of.id), name, change.Change)
	case ipc.LimitCgroup:
		return d.arb.SetCgroupLimits(now, name, change.Change)
	case ipc.LimitRule:
		return d.arb.SetRuleLimits(now, of.id, change.Change)
	}
	return d.arb.SetProcessLimits(now, change.Change, idsOf(d.sessionsOfProcessLocked(int(of.id), of.start))...)
}

func idsOf(sessions []*session) []arbiter.SessionID {
	ids := make([]arbiter.SessionID, len(sessions))
	for i, s := range sessions {
		ids[i] = s.id
	}
	return ids
}

// sessionsOfProcessLocked are the sessions of a live process.
func (d *Daemon) sessionsOfProcessLocked(pid int, start uint64) (of []*session) {
	for _, s := range d.ofProcess[pid] {
		switch {
		case s.dead || start != 0 && s.peer.StartTicks != start:
		case len(of) > 0 && s.peer.StartTicks < of[0].peer.StartTicks:
		case len(of) > 0 && s.peer.StartTicks > of[0].peer.StartTicks:
			of = []*session{s}
		default:
			of = append(of, s)
		}
	}
	return of
}
