package daemon

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
	"github.com/gpuarb/gpuarb/daemon/errand"
	"github.com/gpuarb/gpuarb/internal/faults"
	"github.com/gpuarb/gpuarb/ipc"
)

// This file suspends and resumes jobs for users, who ask by `gpuarb suspend` and `gpuarb resume` (serve.go) or write to the file freeze
// (setlimit.go). It also carries out the arbiter's errands, which lock.go collects. An errand runs the hook of a job, or stops or starts
// its unit. Then the arbiter is told how that ended.

// suspend answers a client that wants a job to give its memory back or to take it again.
func (cl *client) suspend(r *ipc.SuspendRequest) (ipc.Empty, error) {
	cl.takeLock()
	defer cl.d.unlock()
	err := cl.d.suspendLocked(requesterOf(cl.conn.Peer()), arbiter.JobID(r.Job), r.Resume == 1)
	if errors.Is(err, arbiter.ErrNoJob) {
		err = refused(ipc.StatusNoSession, "there is no job %d; `gpuarb jobs` lists them", r.Job)
	}
	return ipc.Empty{}, err
}

// suspendLocked asks a job to give its memory back or to take it again. It refuses a user who neither owns the job nor is privileged.
func (d *Daemon) suspendLocked(by requester, id arbiter.JobID, resume bool) error {
	owner, known := d.arb.JobProcess(id)
	person := &arbiter.Person{UID: by.uid, PID: by.pid}
	switch {
	case known && !by.owns(owner.UID, owner.Namespace):
		return rules.Wrong(rules.ErrPermission, "job %d is user %d's: only that user or root may suspend and resume it%s", id, owner.UID, wording.NotRoot(by.namespace))
	case resume:
		return d.arb.Resume(d.now(), id, person)
	}
	return d.arb.Suspend(d.now(), id, person)
}

// freeze suspends or resumes a job for a process that writes 1 or 0 to the job's file freeze. It does nothing if the job is resident
// already and 0 is written, or if it is suspending or suspended already and 1 is written. The daemon's log has the reason of a refusal,
// because the process gets only an errno.
func (d *Daemon) freeze(by requester, job uint64, value string) error {
	d.lock()
	defer d.unlock()
	id := arbiter.JobID(job)
	r, _, _ := d.arb.Residence(id)
	var err error
	switch frozen := r == arbiter.Suspending || r == arbiter.Suspended; {
	case d.stopping():
		return errors.Join(unix.ENOTCONN, errStopped)
	case value != "0" && value != "1":
		err = rules.Wrong(rules.ErrRange, "%q is neither 1 (suspend) nor 0 (resume)", value)
	case r == arbiter.Resident && value == "0", frozen && value == "1":
	default:
		err = d.suspendLocked(by, id, value == "0")
	}
	if err == nil {
		return nil
	}
	errno := errnoOf(err)
	if errno == unix.EINVAL && (value == "0" || value == "1") {
		errno = unix.EBUSY // the value is valid, but the job cannot be suspended or resumed in its present state
	}
	d.log.Log(d.ctx, d.history.Level(by.uid), "a write into freeze was refused", "event", "freeze_refused", "uid", by.uid, "job", job, "value", value, "err", err)
	return errors.Join(errno, err)
}

// beginErrands starts a goroutine for each new errand of the arbiter. A daemon that is being stopped drops them:
// the next daemon continues the suspensions by their records. The result is always nil: no timer is needed.
func (d *Daemon) beginErrands() <-chan time.Time {
	d.lock()
	defer d.unlock()
	for _, e := range d.suspensions.errands {
		if !d.stopping() {
			d.wg.Go(func() { d.runErrand(e) })
		}
	}
	d.suspensions.errands = nil
	return nil
}

// runErrand carries out an errand, and tells the arbiter how it ended, unless the daemon is being stopped.
func (d *Daemon) runErrand(e arbiter.Errand) {
	failure := ""
	faults.At("suspension.asking")
	if err := d.errand(e); err != nil {
		failure = err.Error()
		d.log.Warn("a job was asked to give its memory back or to take it again, and that failed", "job", e.Job, "resume", e.Resume, "reason", failure)
	}
	faults.At("suspension.asked")
	d.lock()
	defer d.unlock()
	if !d.stopping() {
		d.arb.ErrandDone(d.now(), e.ID, failure)
	}
}

// errand stops or starts the unit of a job, or runs its hook, and waits for the end.
func (d *Daemon) errand(e arbiter.Errand) error {
	if e.Evict.How == rules.EvictByUnit {
		u := errand.Unit{Name: e.Unit, PIDs: e.PIDs, Timeout: e.Evict.Timeout}
		if e.Resume {
			return u.Start(d.ctx)
		}
		return u.Stop(d.ctx)
	}
	args := e.Evict.Suspend.Args()
	if e.Resume {
		args = e.Evict.Resume.Args()
	}
	p := &e.Process
	switch {
	case len(args) == 0:
		return fmt.Errorf("its rule has no command for that")
	case p.UID == 0 && !p.Privileged:
		return fmt.Errorf("its user is root of a container, for whom no hook runs")
	}
	pids := make([]string, len(e.PIDs))
	for i, pid := range e.PIDs {
		pids[i] = fmt.Sprint(pid)
	}
	device := ""
	if e.Device >= 0 {
		device = fmt.Sprint(e.Device)
	}
	return errand.Run(d.ctx, errand.Hook{Name: fmt.Sprintf("%s%d", d.hookPrefix(), e.ID), Args: args, UID: p.UID, GID: p.GID, Timeout: e.Evict.Timeout,
		Env: []string{fmt.Sprintf("GPUARB_JOB=%d", e.Job), "GPUARB_PIDS=" + strings.Join(pids, " "),
			fmt.Sprintf("GPUARB_BYTES_WANTED=%d", e.Wanted), "GPUARB_DEVICE=" + device}})
}

// hookPrefix returns the first part of the names of all hooks of this daemon. It is made from the path of the state file, so that a
// daemon never ends the hooks of another daemon on the machine.
func (d *Daemon) hookPrefix() string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(d.paths.state))
	return fmt.Sprintf("hook-%08x-", h.Sum32())
}

// leftHooksPatience is the longest time for which a starting daemon waits until the hooks of the last daemon have ended.
const leftHooksPatience = 5 * time.Second

// endLeftHooks ends the hooks that the last daemon left running, so that a job never has two hooks at the same time.
func (d *Daemon) endLeftHooks() {
	ctx, cancel := context.WithTimeout(d.ctx, leftHooksPatience)
	defer cancel()
	if err := errand.EndAll(ctx, d.hookPrefix()); err != nil {
		d.log.Warn("hooks of an earlier daemon may still run", "err", err)
	}
}
