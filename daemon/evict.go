package daemon

import (
	"fmt"
	"strings"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
	"github.com/gpuarb/gpuarb/daemon/errand"
	"github.com/gpuarb/gpuarb/ipc"
)

// This file carries out the arbiter's errands: it runs the hook of a job, or stops or starts its unit, and tells the arbiter how that ended.
// lock.go calls it.

// suspend asks a job to give its memory back or to take it again, for a command. The user of the job may ask, and who is privileged.
func (cl *client) suspend(r *ipc.SuspendRequest) (ipc.Empty, error) {
	d, peer, id := cl.d, cl.conn.Peer(), arbiter.JobID(r.Job)
	cl.takeLock()
	defer d.unlock()
	owner, known := d.arb.JobProcess(id)
	switch {
	case !known:
		return ipc.Empty{}, refused(ipc.StatusNoSession, "there is no job %d; `gpuarb jobs` lists them", r.Job)
	case !requesterOf(peer).owns(owner.UID, owner.Namespace):
		return ipc.Empty{}, refused(ipc.StatusPermission, "job %d is user %d's: only that user or root may suspend and resume it%s", r.Job, owner.UID, wording.NotRoot(peer.Namespace))
	case r.Resume == 1:
		return ipc.Empty{}, d.arb.Resume(d.now(), id)
	}
	return ipc.Empty{}, d.arb.Suspend(d.now(), id)
}

// startErrandLocked carries out an errand in a goroutine of its own.
func (d *Daemon) startErrandLocked(e arbiter.Errand) {
	if d.stopping() {
		return // the next daemon does it
	}
	d.wg.Go(func() {
		failure := ""
		if err := d.errand(e); err != nil {
			failure = err.Error()
			d.log.Warn("a job was asked to give its memory back or to take it again, and that failed", "job", e.Job, "resume", e.Resume, "reason", failure)
		}
		d.lock()
		defer d.unlock()
		if !d.stopping() {
			d.arb.ErrandDone(d.now(), e.ID, failure)
		}
	})
}

// errand carries out an errand, and waits for its end.
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
	return errand.Run(d.ctx, errand.Hook{Name: fmt.Sprintf("hook-%d-%d", e.Job, e.ID), Args: args, UID: p.UID, GID: p.GID, Timeout: e.Evict.Timeout,
		Env: []string{fmt.Sprintf("GPUARB_JOB=%d", e.Job), "GPUARB_PIDS=" + strings.Join(pids, " "),
			fmt.Sprintf("GPUARB_BYTES_WANTED=%d", e.Wanted), "GPUARB_DEVICE=" + device}})
}
