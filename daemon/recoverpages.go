package daemon

// This file recovers jobs and changed limits from lease pages, if the state file is gone or has another version.
// recover.go and resume.go call it. The last daemon wrote the limits to each client's page (publishlimits.go). A
// client can write to its page, so that the daemon accepts only values that lower the client's limits below the
// rules.

import (
	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/statefile"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/shim"
)

// remakeJobLocked opens a job again that only its processes still know, with the limits on the page of the first such
// process. The page does not say what the job had reserved or which devices it may use.
func (d *Daemon) remakeJobLocked(id arbiter.JobID, token ipc.Token, proc rules.Process, page *ipc.Page) error {
	if err := d.jobCounts.full(proc.PID, proc.UID, proc.MayPass()); err != nil {
		return err
	}
	index, record, err := d.file.Jobs.New()
	if err != nil {
		return err
	}
	*record = statefile.Job{Run: 1, ID: uint64(id), Token: token, UID: proc.UID, GID: proc.GID,
		Max: ipc.NoLimit, Min: ipc.NoLimit, Released: 1}
	if given, ok := page.JobOptions(); ok {
		record.Max, record.MaxPerMille, record.Streams = given.Memory, given.Share, given.Streams
		record.Flags = given.Job & jobFlags
	}
	statefile.SetTexts(&record.Command, proc.Command, "")
	if err := d.arb.RestoreJob(d.now(), arbiter.RestoredJob{ID: id, Request: jobRequest(proc, record), Released: true}); err != nil {
		d.file.Jobs.Free(index)
		return err
	}
	d.file.Jobs.Commit(index)
	j := newJob(index, record)
	j.runner.PID, j.open, j.namespace = proc.PID, true, proc.Namespace
	d.enterJobLocked(j)
	d.log.Warn("a program's job is not known any more: it is made again with the limits that the program saw, "+
		"without what was reserved for it", "client_pid", proc.PID, "job", id)
	return nil
}

// lowerToLocked lowers a process's limits to those on its page: the limits of a job that is not known, and memory.max
// on the devices that the process uses.
func (d *Daemon) lowerToLocked(s *session, page *ipc.Page) {
	if given, ok := page.JobOptions(); ok && d.jobByID[s.job] == nil {
		streams := int(max(1, min(given.Streams, maxClaimed)))
		d.lowerLocked(s, rules.Change{Device: rules.AllDevices, Max: new(shim.SizeOf(given.Memory, given.Share)), Streams: &streams})
	}
	for l := range s.open() {
		info, err := d.arb.Attach(d.now(), s.id, l.Device, l)
		if seen := accounting.Bytes(page.Lease[l.Record.Slot].Limit); err == nil && seen < info.Budget {
			d.lowerLocked(s, rules.Change{Device: l.Device, Max: &accounting.Size{Bytes: seen}})
		}
	}
}

func (d *Daemon) lowerLocked(s *session, change rules.Change) {
	change.UID, change.Lowers = s.peer.UID, true
	of := processOwner(s)
	if err := d.arb.SetLimits(d.now(), of, "", change); err != nil {
		d.log.Warn("a limit that a program saw cannot be set again", "client_pid", s.peer.PID, "limit", change, "err", err)
		return
	}
	d.keepLimitsLocked(of)
	d.log.Info("a program goes on with the limits that it saw", "client_pid", s.peer.PID, "limit", change)
}
