package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/gpufs"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/shim"
)

// privileged tells who may change anybody's limits: root, and whose daemon it is.
func privileged(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

// mayChange returns when a user may change a limit, and the context's error where that ended before.
// Root, and whose daemon it is, never wait: nobody's time is spent but by their leave.
func (d *Daemon) mayChange(ctx context.Context, uid uint32) error {
	if privileged(uid) {
		return nil
	}
	return d.changes.Wait(ctx, uid)
}

// Set changes a limit that somebody wrote into the filesystem.
func (d *Daemon) Set(ctx context.Context, s gpufs.Setting) error {
	if d.mayChange(ctx, s.UID) != nil {
		return unix.EINTR
	}
	err := d.set(s)
	if err != nil {
		whose := map[gpufs.Owner]string{gpufs.OfDevice: d.nameOfDevice(s.Device), gpufs.OfJob: fmt.Sprintf("job %d", s.Job), gpufs.OfUser: "user " + s.UserName, gpufs.OfCgroup: "cgroup " + s.Cgroup}[s.Of]
		d.lock()
		defer d.unlock()
		d.refusedChangeLocked(s.UID, cmp.Or(whose, fmt.Sprintf("process %d", s.PID)), s.Name+"="+s.Value, err)
	}
	return err
}

// refusedChangeLocked logs who wanted to change what of whose, and why that was refused.
func (d *Daemon) refusedChangeLocked(uid uint32, whose, change string, err error) {
	level := slog.LevelDebug
	if d.logsDecisionLocked(uid) {
		level = slog.LevelInfo
	}
	d.log.Log(d.ctx, level, "a change of a limit was refused", "event", "limits_refused", "uid", uid, "of", whose, "change", change, "err", err)
}

func (d *Daemon) set(s gpufs.Setting) error {
	target := map[gpufs.Owner]uint32{gpufs.OfDevice: ipc.LimitDevice, gpufs.OfProcess: ipc.LimitProcess, gpufs.OfJob: ipc.LimitJob, gpufs.OfUser: ipc.LimitUser, gpufs.OfCgroup: ipc.LimitCgroup}[s.Of]
	r := ipc.LimitRequest{Target: target, ID: cmp.Or(s.Job, uint64(s.PID), uint64(s.User)), Device: uint32(s.Device)}
	if err := shim.SetLimit(&r, s.Name, s.Value); err != nil {
		return errors.Join(unix.EINVAL, err)
	}
	d.file.Promise(0)
	defer d.file.Kept(0)
	d.lock()
	defer d.unlock()
	defer d.tookChangeLocked(s.UID, d.now())
	if err := d.changeLocked(s.UID, cmp.Or(s.Cgroup, s.UserName), &r, s.StartTicks, requested(arbiter.Changer{UID: s.UID, PID: s.By}, &r)); err != nil {
		return errors.Join(errnoOf(err), err)
	}
	return nil
}

// errnoOf says by which errno a write is refused.
func errnoOf(err error) unix.Errno {
	var refusal *arbiter.Refusal
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
	uid := cl.conn.Peer().UID
	if cl.d.mayChange(cl.d.ctx, uid) != nil {
		return ipc.Empty{}, refused(ipc.StatusShuttingDown, "the daemon is being stopped")
	}
	err := cl.d.limit(arbiter.Changer{UID: uid, PID: cl.conn.Peer().PID}, r, cgroup)
	switch {
	case errors.Is(err, rules.ErrPermission):
		err = refused(ipc.StatusPermission, "%v", err)
	case errors.Is(err, arbiter.ErrNoJob):
		err = refused(ipc.StatusRange, "there is no job %d (any more); /gpu/jobs lists them", r.ID)
	case errors.Is(err, arbiter.ErrNoSession):
		err = refused(ipc.StatusRange, "process %d is no client of this daemon (any more); `gpuarb ps` lists those that hold something", r.ID)
	case errors.Is(err, arbiter.ErrNoRule):
		err = refused(ipc.StatusRange, "the configuration has no such rule (any more)")
	case errors.Is(err, rules.ErrRange):
		err = refused(ipc.StatusRange, "%v", err)
	case errors.Is(err, arbiter.ErrNoDevice):
		err = refused(ipc.StatusNoDevice, "%v", err)
	}
	return ipc.Empty{}, err
}

func (d *Daemon) limit(by arbiter.Changer, r *ipc.LimitRequest, cgroup string) error {
	uid, change := by.UID, requested(by, r)
	name := cgroup
	if r.Target == ipc.LimitUser {
		name = d.inv.UserName(uint32(r.ID)) // the user database may be slow
	}
	d.lock()
	defer d.unlock()
	defer d.tookChangeLocked(uid, d.now())
	err := d.changeLocked(uid, name, r, 0, change)
	if err != nil {
		d.refusedChangeLocked(uid, d.whoseLimitLocked(r, name), changeText(r, change), err)
	}
	d.finishLocked() // so that it is in force when this returns, and counts as his change
	return err
}

// tookChangeLocked is for a change that a user made and that began at a time, with the lock since then.
func (d *Daemon) tookChangeLocked(uid uint32, began time.Time) {
	d.changes.Took(uid, d.now().Sub(began))
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

// changeText says what a request wants to set.
func changeText(r *ipc.LimitRequest, change rules.Change) string {
	if r.Target == ipc.LimitDevice {
		return fmt.Sprintf("slots.max=%d", r.Slots)
	}
	return change.String()
}

// requested is what a user asks to be changed.
func requested(by arbiter.Changer, r *ipc.LimitRequest) rules.Change {
	change := changeOf(r.Set, shim.SizeOf(r.Max, r.MaxShare), shim.SizeOf(r.Min, r.MinShare), int(r.Streams))
	change.Device, change.UID, change.PID, change.Privileged = rules.AllDevices, by.UID, by.PID, privileged(by.UID)
	if r.Device != ipc.AllDevices {
		change.Device = int(r.Device)
	}
	return change
}

// changeOf is what a request, or a record of one, changes.
func changeOf(set uint32, most, least accounting.Size, streams int) (change rules.Change) {
	if set&ipc.SetMax != 0 {
		change.Max = &most
	}
	if set&ipc.SetMin != 0 {
		change.Min = &least
	}
	if set&ipc.SetStreams != 0 {
		change.Streams = &streams
	}
	return change
}

// changeLocked changes limits as a request says. A user has a name, and a cgroup has its path there. Of a process, start tells it from others of its PID, as in
// setProcessLimitsLocked.
func (d *Daemon) changeLocked(uid uint32, name string, r *ipc.LimitRequest, start uint64, change rules.Change) error {
	switch r.Target {
	case ipc.LimitUser:
		return d.setUserLimitsLocked(uint32(r.ID), name, change)
	case ipc.LimitCgroup:
		return d.setCgroupLimitsLocked(name, change)
	case ipc.LimitRule:
		return d.setRuleLimitsLocked(r.ID, change)
	case ipc.LimitDevice:
		if r.Set&ipc.SetSlots == 0 {
			return nil
		}
		return d.setSlotsLocked(arbiter.Changer{UID: uid, PID: change.PID}, change.Device, int(r.Slots))
	case ipc.LimitJob:
		return d.setJobLimitsLocked(r.ID, change)
	}
	return d.setProcessLimitsLocked(int(r.ID), start, change)
}

// setSlotsLocked changes slots.max of a device.
func (d *Daemon) setSlotsLocked(by arbiter.Changer, device, most int) error {
	if !privileged(by.UID) {
		return fmt.Errorf("slots.max of %s: only root may change it: %w", d.nameOfDevice(device), rules.ErrPermission)
	}
	if err := d.arb.SetSlots(d.now(), device, most, by); err != nil {
		return err
	}
	d.keepLimitLocked(target{kind: ipc.LimitDevice, device: int32(device)}, rules.Change{UID: by.UID, Privileged: true}, &most)
	return nil
}

// setKeptLocked makes a change for which there is a record, shows it in the pages of whose it is, and
// writes it down.
func (d *Daemon) setKeptLocked(to target, change rules.Change, set func() error) error {
	if err := d.roomForLimitLocked(to, change.UID); err != nil {
		return err
	}
	if err := set(); err != nil {
		return err
	}
	d.showTargetLocked(to)
	d.keepLimitLocked(to, change, nil)
	return nil
}

// ofNobody is what the record of a user's limits has as the start of a process: so a daemon that
// knows no such records, after a return to an older gpuarb, finds no process for it.
const ofNobody = ^uint64(0)

// setUserLimitsLocked changes what all programs of a user may hold.
func (d *Daemon) setUserLimitsLocked(uid uint32, name string, change rules.Change) error {
	to := target{ipc.LimitUser, uint64(uid), ofNobody, int32(change.Device), !change.Privileged}
	err := d.setKeptLocked(to, change, func() error { return d.arb.SetUserLimits(d.now(), uid, name, change) })
	if err == nil && !d.arb.UserLimited(uid) {
		d.forgetLimitsLocked(to.owner())
	}
	return err
}

// setRuleLimitsLocked changes what a rule gives, until the configuration is read again.
func (d *Daemon) setRuleLimitsLocked(id uint64, change rules.Change) error {
	rule, ok := d.arb.Rule(id)
	if !ok {
		return arbiter.ErrNoRule
	}
	to := target{ipc.LimitRule, id, rule.Says(), int32(change.Device), !change.Privileged}
	return d.setKeptLocked(to, change, func() error { return d.arb.SetRuleLimits(d.now(), id, change) })
}

// setJobLimitsLocked changes the limits of a job.
func (d *Daemon) setJobLimitsLocked(id uint64, change rules.Change) error {
	to := target{ipc.LimitJob, id, 0, int32(change.Device), !change.Privileged}
	if d.jobByID[arbiter.JobID(id)] == nil { // a bare process's job is known by the process
		p, ok := d.arb.SoleProcess(arbiter.JobID(id))
		if !ok {
			return fmt.Errorf("job %d: %w", id, arbiter.ErrNoJob)
		}
		to = target{ipc.LimitProcess, uint64(p.PID), p.StartTicks, int32(change.Device), !change.Privileged}
	}
	return d.setKeptLocked(to, change, func() error { return d.arb.SetJobLimits(d.now(), arbiter.JobID(id), change) })
}

// setProcessLimitsLocked changes the limits of a process in all its sessions. Start tells two
// processes of one PID apart; 0: the one that has it now.
func (d *Daemon) setProcessLimitsLocked(pid int, start uint64, change rules.Change) error {
	of := d.sessionsOfProcessLocked(pid, start)
	if len(of) == 0 {
		return fmt.Errorf("process %d: %w", pid, arbiter.ErrNoSession)
	}
	to := target{ipc.LimitProcess, uint64(pid), of[0].peer.StartTicks, int32(change.Device), !change.Privileged}
	return d.setKeptLocked(to, change, func() error { return d.arb.SetProcessLimits(d.now(), change, idsOf(of)...) })
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
