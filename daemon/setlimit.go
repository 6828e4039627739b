package daemon

// This file changes live limits, for writes into the filesystem (gpufs) and for requests on a connection (serve.go).
// keptlimits.go keeps them in the state file.

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/gpufs"
	"github.com/gpuarb/gpuarb/internal/procfacts"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/shim"
)

// awaitChange waits until the requester may change a limit: users who change many limits must wait. It returns the
// context's error if the context ends before. A privileged requester never waits.
func (d *Daemon) awaitChange(ctx context.Context, by requester) error {
	if by.privileged {
		return nil
	}
	return d.changes.Wait(ctx, by.uid)
}

// Set changes a limit, or suspends or resumes a job, when a process writes that into the filesystem.
func (d *Daemon) Set(ctx context.Context, s gpufs.Setting) error {
	by := writerOf(s)
	if d.awaitChange(ctx, by) != nil {
		return unix.EINTR
	}
	if s.Name == gpufs.Freeze {
		return d.freeze(by, s.Of.ID, s.Value)
	}
	r := ipc.LimitRequest{Target: uint32(s.Of.Kind), Device: uint32(s.Device)}
	if err := shim.SetLimit(&r, s.Name, s.Value); err != nil {
		d.lock()
		defer d.unlock()
		d.refusedChangeLocked(s.UID, s.Of, s.UserName, s.Name+"="+s.Value, err)
		return errors.Join(unix.EINVAL, err)
	}
	change := d.requested(by, &r, s.Of.Path)
	if s.Of.Kind == rules.OfCgroup { // as in cgroupfs, the limit ends with the folder
		change.bind, change.folder = asBefore, folderFor(by, s.Of.Path)
	}
	if err := d.change(by, s.Of, s.UserName, change); err != nil {
		return errors.Join(errnoOf(err), err)
	}
	return nil
}

// ownerIn returns the owner whose limits a request changes: the cgroup, if a path is given.
func ownerIn(r *ipc.LimitRequest, cgroup string) rules.Owner {
	of := rules.Owner{Kind: rules.Kind(r.Target), ID: r.ID, Path: cgroup}
	if of.Kind == rules.OfDevice {
		of.ID = uint64(r.Device)
	}
	if of.Kind == rules.OfCgroup {
		of.ID = 0
	}
	return of
}

// change makes a change for the requester, and logs a refusal. name is the user name of an owner that is a user.
func (d *Daemon) change(by requester, of rules.Owner, name string, change limitChange) error {
	d.lock()
	defer d.unlock()
	if d.stopping() { // the state file belongs to the next daemon now
		return errStopped
	}
	began := d.now()
	if by.start != 0 {
		d.applyLocked(procfacts.Started{PID: by.pid, StartTicks: by.start})
	}
	err := d.changeLocked(of, name, change)
	if err != nil {
		d.refusedChangeLocked(by.uid, of, name, change.String(), err)
	}
	d.changes.Took(by.uid, d.now().Sub(began)) // the user's next change waits accordingly
	return err
}

// refusedChangeLocked logs a refused change: the user who asked, the owner of the limits, the change, and the reason.
func (d *Daemon) refusedChangeLocked(uid uint32, of rules.Owner, name, change string, err error) {
	d.log.Log(d.ctx, d.history.Level(uid), "a change of a limit was refused", "event", "limits_refused", "uid", uid, "of", d.ownerNameLocked(of, name), "change", change, "err", err)
}

// changeLocked changes live limits, publishes them on the lease pages of the programs concerned, and keeps them in
// the state file.
func (d *Daemon) changeLocked(of rules.Owner, name string, change limitChange) error {
	of, err := d.arb.LimitOwner(of)
	if err == nil {
		err = d.roomForLimitLocked(of, change.Change)
	}
	if err == nil && of.Kind == rules.OfCgroup {
		err = d.roomForCgroupLocked(of.Path)
	}
	if err == nil && change.bind == toFolder && change.folder == 0 && change.Privileged {
		err = rules.Wrong(rules.ErrRange, "cgroup %s has no folder that the limit could end with: without --with-folder the limit waits for it", of.Path)
	}
	if err == nil {
		err = d.arb.SetLimits(d.now(), of, name, change.Change)
	}
	if err != nil {
		return err
	}
	if of.Kind == rules.OfCgroup {
		d.keepCgroupLocked(of.Path, change)
	}
	d.publishLimitsOfLocked(of)
	d.keepLimitsLocked(of)
	return nil
}

// limit answers a Limit request.
func (cl *client) limit(r *ipc.LimitRequest) (ipc.Empty, error) { return cl.changeLimit(r, "") }

// limitCgroup answers a Cgroup request.
func (cl *client) limitCgroup(r *ipc.CgroupRequest) (ipc.Empty, error) {
	return cl.changeLimit(&r.Limit, r.Path.String())
}

// changeLimit changes a limit for the client. cgroup is the path of the cgroup whose limit changes; "": the request
// names another owner.
func (cl *client) changeLimit(r *ipc.LimitRequest, cgroup string) (ipc.Empty, error) {
	by := requesterOf(cl.conn.Peer())
	err := errStopped
	if cl.d.awaitChange(cl.d.ctx, by) == nil {
		err = cl.d.limit(by, r, cgroup)
	}
	switch {
	case errors.Is(err, errStopped):
		err = refused(ipc.StatusShuttingDown, "%v", errStopped)
	case errors.Is(err, arbiter.ErrNoJob):
		err = refused(ipc.StatusRange, "there is no job %d (any more); `gpuarb jobs` lists them", r.ID)
	case errors.Is(err, arbiter.ErrNoSession):
		err = refused(ipc.StatusRange, "process %d does not use gpuarb (any more); `gpuarb ps` lists those that do", r.ID)
	case errors.Is(err, arbiter.ErrNoRule):
		err = refused(ipc.StatusRange, "the configuration has no such rule (any more)")
	}
	return ipc.Empty{}, err
}

func (d *Daemon) limit(by requester, r *ipc.LimitRequest, cgroup string) error {
	name, of := "", ownerIn(r, cgroup)
	if of.Kind == rules.OfUser {
		name = d.inv.UserName(uint32(of.ID)) // the user database may be slow
	}
	return d.change(by, of, name, d.requested(by, r, cgroup))
}

// ownerNameLocked returns the name of an owner of limits, for the log.
func (d *Daemon) ownerNameLocked(of rules.Owner, name string) string {
	switch of.Kind {
	case rules.OfDevice:
		return d.nameOfDevice(int(of.ID))
	case rules.OfJob:
		return d.arb.JobName(arbiter.JobID(of.ID))
	case rules.OfUser:
		return "user " + name
	case rules.OfCgroup:
		return "cgroup " + of.Path
	case rules.OfRule:
		return d.arb.RuleName(of.ID)
	}
	return fmt.Sprintf("process %d", of.ID)
}

// cgroupOfJob returns the cgroup that a job is bound to; "": none.
func (d *Daemon) cgroupOfJob(id arbiter.JobID) string {
	d.lock()
	defer d.unlock()
	if j := d.jobByID[id]; j != nil && j.bound != nil {
		return j.bound.path
	}
	return ""
}

// requested returns the change that a request asks for. cgroup is as for changeLimit. It must be called without the
// daemon's lock, because it reads the user database and /proc.
func (d *Daemon) requested(by requester, r *ipc.LimitRequest, cgroup string) limitChange {
	change := limitChange{Change: changeIn(r)}
	change.Device, change.UID, change.PID, change.Privileged, change.Namespace = rules.AllDevices, by.uid, by.pid, by.privileged, by.namespace
	if cgroup == "" && rules.Kind(r.Target) == rules.OfJob {
		if bound := d.cgroupOfJob(arbiter.JobID(r.ID)); bound != "" {
			change.Inside = by.runsIn(bound)
		}
	}
	change.Inside = change.Inside || cgroup != "" && cgroup != "/" && by.runsIn(cgroup)
	if r.Device != ipc.AllDevices {
		change.Device = int(r.Device)
	}
	if !change.Privileged {
		change.User = d.inv.UserName(by.uid)
	}
	if cgroup != "" && r.Set&ipc.SetWithFolder != 0 {
		change.bind, change.folder = toFolder, folderFor(by, cgroup)
		if change.Inside { // or a process in the cgroup could end a lasting limit: by removing the folder
			change.bind = asBefore
		}
	}
	return change
}
