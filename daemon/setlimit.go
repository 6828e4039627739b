package daemon

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/config"
	"github.com/gpuarb/gpuarb/gpufs"
	"github.com/gpuarb/gpuarb/ipc"
)

// privileged tells who may change anybody's limits: root, and whose daemon it is.
func privileged(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

// Set changes a limit that somebody wrote into the filesystem.
func (d *Daemon) Set(s gpufs.Setting) error {
	err := d.set(s)
	if err != nil {
		d.log.Debug("a limit was not changed", "file", s.Name, "value", s.Value, "uid", s.UID, "err", err)
	}
	return err
}

func (d *Daemon) set(s gpufs.Setting) error {
	size, err := config.ParseSize(s.Value)
	count := 0
	change := arbiter.Change{Device: s.Device, UID: s.UID, Privileged: privileged(s.UID)}
	switch s.Name {
	case "memory.max":
		change.Max = &size
	case "memory.min":
		change.Min = &size
	case "streams.max", "slots.max":
		if count, err = parseCount(s.Value); s.Name == "slots.max" && s.Value == "max" {
			count, err = 0, nil
		}
		change.Streams = &count
	}
	if err != nil {
		return errors.Join(unix.EINVAL, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch s.Of {
	case gpufs.OfDevice:
		err = d.setSlots(s.UID, s.Device, count)
	case gpufs.OfJob:
		err = d.setJobLimits(s.Job, change)
	case gpufs.OfProcess:
		err = d.setProcessLimits(s.PID, s.StartTicks, change)
	}
	d.drainEvents()
	if err != nil {
		return errors.Join(errnoOf(err), err)
	}
	return nil
}

// parseCount reads a number of things, from 1 on.
func parseCount(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is no number from 1 to %d", text, math.MaxInt32)
	}
	return int(n), nil
}

// errnoOf says by which errno a write is refused.
func errnoOf(err error) unix.Errno {
	var refusal *arbiter.Refusal
	switch {
	case errors.As(err, &refusal), statusOf(err) == ipc.StatusTooMany:
		return unix.ENOSPC // a memory.min that has no room, or a change that could not be kept
	case errors.Is(err, arbiter.ErrPermission):
		return unix.EPERM
	case errors.Is(err, arbiter.ErrRange):
		return unix.EINVAL
	case errors.Is(err, arbiter.ErrNoJob), errors.Is(err, arbiter.ErrNoSession), errors.Is(err, arbiter.ErrNoDevice):
		return unix.ENODEV
	}
	return unix.EIO
}

// limit answers a Limit request.
func (cl *client) limit(r *ipc.LimitRequest) (ipc.Empty, error) {
	err := cl.d.limit(uint32(cl.conn.Peer().UID), r)
	switch {
	case errors.Is(err, arbiter.ErrPermission):
		err = refused(ipc.StatusPermission, "%v", err)
	case errors.Is(err, arbiter.ErrNoJob):
		err = refused(ipc.StatusRange, "there is no job %d (any more); /gpu/jobs lists them", r.ID)
	case errors.Is(err, arbiter.ErrNoSession):
		err = refused(ipc.StatusRange, "process %d is no client of this daemon (any more); `gpuarb ps` lists those that hold something", r.ID)
	case errors.Is(err, arbiter.ErrRange):
		err = refused(ipc.StatusRange, "%v", err)
	case errors.Is(err, arbiter.ErrNoDevice):
		err = refused(ipc.StatusNoDevice, "%v", err)
	}
	return ipc.Empty{}, err
}

func (d *Daemon) limit(uid uint32, r *ipc.LimitRequest) error {
	change := arbiter.Change{Device: arbiter.AllDevices, UID: uid, Privileged: privileged(uid)}
	if r.Device != ipc.AllDevices {
		change.Device = int(r.Device)
	}
	if r.Set&ipc.SetMax != 0 {
		change.Max = sizeOf(r.Max, r.MaxShare)
	}
	if r.Set&ipc.SetMin != 0 {
		change.Min = sizeOf(r.Min, r.MinShare)
	}
	if r.Set&ipc.SetStreams != 0 {
		streams := int(r.Streams)
		change.Streams = &streams
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.drainEvents()
	switch r.Target {
	case ipc.LimitDevice:
		if r.Set&ipc.SetSlots == 0 {
			return nil
		}
		return d.setSlots(uid, change.Device, int(r.Slots))
	case ipc.LimitJob:
		return d.setJobLimits(r.ID, change)
	}
	return d.setProcessLimits(int(r.ID), 0, change)
}

// setSlots changes slots.max of a device. The lock is held.
func (d *Daemon) setSlots(uid uint32, device, most int) error {
	if !privileged(uid) {
		return fmt.Errorf("slots.max of GPU %d: only root may change it: %w", device, arbiter.ErrPermission)
	}
	if err := d.arb.SetSlots(d.now(), device, most, uid); err != nil {
		return err
	}
	d.keepLimit(target{kind: ipc.LimitDevice, device: int32(device)}, arbiter.Change{UID: uid, Privileged: true}, &most)
	return nil
}

// setJobLimits changes the limits of a job. The lock is held.
func (d *Daemon) setJobLimits(id uint64, change arbiter.Change) error {
	to := target{ipc.LimitJob, id, 0, int32(change.Device), !change.Privileged}
	if d.jobByKey[id|jobKey] == nil { // a bare process's job is known by the process
		p, ok := d.arb.SoleProcess(arbiter.JobID(id))
		if !ok {
			return fmt.Errorf("job %d: %w", id, arbiter.ErrNoJob)
		}
		to = target{ipc.LimitProcess, uint64(p.PID), p.StartTicks, int32(change.Device), !change.Privileged}
	}
	if err := d.roomForLimit(to, change.UID); err != nil {
		return err
	}
	if err := d.arb.SetJobLimits(d.now(), arbiter.JobID(id), change); err != nil {
		return err
	}
	d.showJob(to)
	d.keepLimit(to, change, nil)
	return nil
}

// setProcessLimits changes the limits of a process in all its sessions. Start tells two
// processes of one PID apart; 0: the one that has it now. The lock is held.
func (d *Daemon) setProcessLimits(pid int, start uint64, change arbiter.Change) error {
	of := d.sessionsOfProcess(pid, start)
	if len(of) == 0 {
		return fmt.Errorf("process %d: %w", pid, arbiter.ErrNoSession)
	}
	to := target{ipc.LimitProcess, uint64(pid), of[0].peer.StartTicks, int32(change.Device), !change.Privileged}
	if err := d.roomForLimit(to, change.UID); err != nil {
		return err
	}
	if err := d.arb.SetProcessLimits(d.now(), change, idsOf(of)...); err != nil {
		return err
	}
	for _, s := range of {
		d.show(s)
	}
	d.keepLimit(to, change, nil)
	return nil
}

func idsOf(sessions []*session) []arbiter.SessionID {
	ids := make([]arbiter.SessionID, len(sessions))
	for i, s := range sessions {
		ids[i] = s.id
	}
	return ids
}

// sessionsOfProcess are the sessions of a live process. The lock is held.
func (d *Daemon) sessionsOfProcess(pid int, start uint64) (of []*session) {
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
