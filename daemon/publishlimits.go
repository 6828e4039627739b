package daemon

// This file publishes each job's limits on the lease pages of its programs. recoverpages.go reads them if there is no
// state file.

import (
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/shim"
)

// jobFlags are the flags of a job that pages publish: whether limits count per process, and whether its requests
// wait.
const jobFlags = ipc.JobPerProcess | ipc.JobWait | ipc.JobNoWait

// publishLimitsLocked writes the limits of a session's job to the session's page.
func (d *Daemon) publishLimitsLocked(s *session) {
	if s.page == nil {
		return
	}
	most, streams := d.arb.JobMax(s.id)
	given := ipc.JobOptions{Streams: uint32(streams)}
	given.Memory, given.Share = shim.WireSize(most)
	if j := d.jobByID[s.job]; j != nil {
		given.Job = d.file.Jobs.At(j.index).Flags & jobFlags
	}
	_ = s.page.Guard(func() { s.page.SetJobOptions(given) })
}

// publishAllLimitsLocked calls publishLimitsLocked for all sessions.
func (d *Daemon) publishAllLimitsLocked() {
	for _, s := range d.sessions {
		if !s.dead {
			d.publishLimitsLocked(s)
		}
	}
}

// publishLimitsOfLocked calls publishLimitsLocked for the sessions of a job or process.
func (d *Daemon) publishLimitsOfLocked(of rules.Owner) {
	for _, s := range d.sessions {
		if !s.dead && (processOwner(s) == of || of == rules.Owner{Kind: rules.OfJob, ID: uint64(s.job)}) {
			d.publishLimitsLocked(s)
		}
	}
}
