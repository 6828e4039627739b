package daemon

import (
	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/shim"
	"github.com/gpuarb/gpuarb/statefile"
)

// A daemon whose state file is gone, or was written by another version, knows of no job and
// of no limit that was changed while programs ran. Each client's page has them as the last
// daemon showed them. A client can write there, so that nothing is taken from it but what
// lowers its limits below what the rules give.

// jobFlags are those of a job's flags that its processes' limits and waiting depend on.
const jobFlags = ipc.JobPerProcess | ipc.JobWait | ipc.JobNoWait

// showLocked has a session's page say what its job was given.
func (d *Daemon) showLocked(s *session) {
	if s.page == nil {
		return
	}
	most, streams := d.arb.Given(s.id)
	given := ipc.Given{Streams: uint32(streams)}
	given.Memory, given.Share = shim.WireSize(most)
	if j := d.jobByID[s.job]; j != nil {
		given.Job = d.file.Jobs.At(j.index).Flags & jobFlags
	}
	_ = s.page.Guard(func() { s.page.SetGiven(given) })
}

// showAllLocked is show for all sessions.
func (d *Daemon) showAllLocked() {
	for _, s := range d.sessions {
		if !s.dead {
			d.showLocked(s)
		}
	}
}

// showOwnerLocked is show for the sessions of a job or a process.
func (d *Daemon) showOwnerLocked(of rules.Owner) {
	for _, s := range d.sessions {
		if !s.dead && (processOwner(s) == of || of == rules.Owner{Kind: rules.OfJob, ID: uint64(s.job)}) {
			d.showLocked(s)
		}
	}
}

// processOwner names the process of a session as an owner of live limits.
func processOwner(s *session) rules.Owner {
	return rules.Owner{Kind: rules.OfProcess, ID: uint64(s.peer.PID), Start: s.peer.StartTicks}
}

// remakeJobLocked makes a job again of which nobody knows but its processes: with the limits that the first of them saw. What it holds beyond its
// processes, and which devices it may use, is not in their word.
func (d *Daemon) remakeJobLocked(id arbiter.JobID, token ipc.Token, proc rules.Process, page *ipc.Page) error {
	if err := d.jobsOf.full(proc.PID, proc.UID, proc.MayPass()); err != nil {
		return err
	}
	index, record, err := d.file.Jobs.New()
	if err != nil {
		return err
	}
	*record = statefile.Job{Run: 1, ID: uint64(id), Token: token, UID: proc.UID, GID: proc.GID,
		Max: ipc.NoLimit, Min: ipc.NoLimit, Released: 1}
	if given, ok := page.Given(); ok {
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
	d.knownJobLocked(j)
	d.log.Warn("a program's job is not known any more: it is made again with the limits that the program saw, "+
		"without what was reserved for it", "client_pid", proc.PID, "job", id)
	return nil
}

// lowerToLocked lowers a process's limits to those that its page shows: what was given to a job
// that is not known, and memory.max on the devices that it uses.
func (d *Daemon) lowerToLocked(s *session, page *ipc.Page) {
	if given, ok := page.Given(); ok && d.jobByID[s.job] == nil {
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
