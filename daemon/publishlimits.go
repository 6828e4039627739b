package daemon

// This file writes into the lease pages of programs what their jobs were given, for a daemon that has no state file: recoverpages.go reads it.

import (
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/shim"
)

// jobFlags are the flags of a job on which the limits of its processes depend, and whether they wait.
const jobFlags = ipc.JobPerProcess | ipc.JobWait | ipc.JobNoWait

// publishLimitsLocked writes into a session's page what its job was given.
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

// publishAllLimitsLocked is show for all sessions.
func (d *Daemon) publishAllLimitsLocked() {
	for _, s := range d.sessions {
		if !s.dead {
			d.publishLimitsLocked(s)
		}
	}
}

// publishLimitsOfLocked is show for the sessions of a job or a process.
func (d *Daemon) publishLimitsOfLocked(of rules.Owner) {
	for _, s := range d.sessions {
		if !s.dead && (processOwner(s) == of || of == rules.Owner{Kind: rules.OfJob, ID: uint64(s.job)}) {
			d.publishLimitsLocked(s)
		}
	}
}
