package daemon

// This file gives the suspensions that the last daemon recorded to the arbiter. recover.go calls it. The arbiter continues them later,
// after recoverqueue.go has recovered the waiting requests.

import (
	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/internal/procfacts"
	"github.com/gpuarb/gpuarb/internal/statefile"
	"github.com/gpuarb/gpuarb/ipc"
)

// heldLocked returns what a job held on the devices that still exist. A figure above the size of its device comes from a damaged record,
// and is lowered to the size.
func (d *Daemon) heldLocked(r *statefile.Suspension) (all []arbiter.HeldMemory) {
	for _, on := range r.On[:r.Devices] {
		for _, index := range d.indicesOf([]statefile.JobDevice{{UUID: on.UUID, Index: on.Index}}) {
			m := arbiter.HeldMemory{Device: index, Bytes: accounting.Bytes(on.Bytes), Overhead: accounting.Bytes(on.Overhead), Contexts: int(min(on.Contexts, maxClaimed))}
			if total := d.arb.Total(index); total != 0 {
				m.Bytes, m.Overhead = min(m.Bytes, total), min(m.Overhead, total)
			}
			all = append(all, m)
		}
	}
	return all
}

// suspensionOfProcess returns the saved suspension of the job that a process without `gpuarb run` is; nil: there is none.
func (f *savedProcesses) suspensionOfProcess(p ipc.Peer) *savedSuspension {
	for _, s := range f.suspensions {
		if s.Key == "" && !s.done && s.Process.PID == p.PID && s.Process.StartTicks == p.StartTicks {
			return s
		}
	}
	return nil
}

// suspensionOfJob returns the saved suspension of the job with record r; nil: there is none.
func (f *savedProcesses) suspensionOfJob(r *statefile.Job) *savedSuspension {
	key := jobKeyOf(r.Token)
	for _, s := range f.suspensions {
		if s.Key == key && !s.done {
			return s
		}
	}
	return nil
}

// recoverSuspensionsLocked recovers the suspensions of the jobs that have a record of their own, and of the jobs whose unit was stopped,
// which have no processes. It must be called after those jobs are recovered, and before any other job gets a number. A job that is one
// living process has no record of its own: recover.go recovers its suspension with the session of the process.
func (d *Daemon) recoverSuspensionsLocked(saved *savedProcesses) {
	for _, j := range d.jobs {
		if s := saved.suspensionOfJob(d.file.Jobs.At(j.index)); s != nil {
			d.recoverSuspensionLocked(s, j.id)
		}
	}
	processes := map[procfacts.Started]bool{}
	for _, x := range saved.sessions {
		processes[startedOf(x.peer)] = true
	}
	for _, s := range saved.suspensions {
		if s.done || s.Key == "" && processes[procfacts.Started{PID: s.Process.PID, StartTicks: s.Process.StartTicks}] {
			continue
		}
		id := s.Job
		if _, taken := d.arb.JobProcess(id); taken {
			id = d.arb.NextJob()
		}
		d.recoverSuspensionLocked(s, id)
	}
}

// recoverSuspensionLocked gives the suspension s to the arbiter, for job id: the job's number may differ from that of the last daemon.
// If the arbiter refuses it, the record is freed.
func (d *Daemon) recoverSuspensionLocked(s *savedSuspension, id arbiter.JobID) {
	s.done = true
	was := s.Job
	s.Job, s.Had = id, d.heldLocked(d.file.Suspensions.At(s.row))
	err := d.arb.RestoreSuspension(d.now(), s.Suspension)
	if err != nil && s.State != arbiter.Resident {
		d.log.Warn("a suspended job has ended: it is not asked to take its memory again", "job", was, "err", err)
	}
	if err == nil {
		d.suspensions.rows[id] = s.row // unlock writes a new record, and frees this one
		return
	}
	d.file.Suspensions.Free(s.row)
}
