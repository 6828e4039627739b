package daemon

// This file answers questions about the use of devices by a job, about its processes that ran past the library, and
// about its warnings. serve.go calls it. The sums come from arbiter.Tally, the warnings from arbiter.Warnings.

import (
	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/ipc"
)

// jobTally answers how much a job has used and waited so far. Processes of the job's own user may ask, and root.
func (cl *client) jobTally(r *ipc.JobTallyRequest) (rep ipc.JobTallyReply, err error) {
	id, tally, err := cl.tallyOf(r.Job)
	if err != nil {
		return rep, err
	}
	rep = ipc.JobTallyReply{Waits: tally.Waits, Waited: uint64(tally.Waited.Milliseconds()), Refused: tally.Refused,
		Since: uint64(tally.Since.Milliseconds()), Job: uint64(id), Unknown: uint32(tally.Unknown)}
	for _, on := range tally.Devices[:min(len(tally.Devices), ipc.PageSlots)] {
		most := uint64(on.Max)
		if on.Max == accounting.Max {
			most = ipc.NoLimit
		}
		dev, _ := cl.d.deviceByIndex(on.Device)
		rep.Device[rep.Devices] = ipc.JobTallyDevice{Index: uint32(on.Device), Vendor: ipc.Vendors[dev.Vendor], Peak: uint64(on.Peak), Max: most}
		rep.Devices++
	}
	return rep, nil
}

// tallyOf returns the number of a job and what it has used. It gives an error if the peer may not ask for it.
func (cl *client) tallyOf(token ipc.Token) (id arbiter.JobID, tally arbiter.Tally, err error) {
	d := cl.d
	cl.takeLock()
	defer d.unlock()
	j, err := d.ownJobLocked(token, cl.conn.Peer())
	if err != nil {
		return 0, tally, err
	}
	tally, _ = d.arb.Tally(d.now(), j.id)
	return j.id, tally, nil
}

// account answers with a sentence about what a job has used and waited for so far. Only processes of the job's own user
// and of root may ask.
func (cl *client) account(r *ipc.AccountRequest) (rep ipc.AccountReply, err error) {
	_, tally, err := cl.tallyOf(r.Job)
	if err != nil {
		return rep, err
	}
	return ipc.AccountReply{Text: ipc.MakeText(tally.Account())}, nil
}

// beside answers which processes of a job used a device past the library. Processes of the job's own user may ask,
// and root.
func (cl *client) beside(r *ipc.BesideRequest) (rep ipc.BesideReply, err error) {
	_, tally, err := cl.tallyOf(r.Job)
	if err != nil {
		return rep, err
	}
	for _, p := range tally.Unmanaged[:min(len(tally.Unmanaged), ipc.BesideMost)] {
		rep.Process[rep.Count] = ipc.BesideProcess{PID: uint32(p.PID), Device: uint32(p.Device), Peak: uint64(p.Peak),
			Program: ipc.MakeShortText(figures.ProgramOf(p.Command)), Bypass: ipc.MakeShortText(string(p.Bypass))}
		rep.Count++
	}
	rep.More = uint32(tally.MoreUnmanaged)
	return rep, nil
}

// warnings answers which warnings a job has got. Only processes of the job's own user and of root may ask.
func (cl *client) warnings(r *ipc.WarningsRequest) (rep ipc.WarningsReply, err error) {
	d := cl.d
	cl.takeLock()
	defer d.unlock()
	j, err := d.ownJobLocked(r.Job, cl.conn.Peer())
	if err != nil {
		return rep, err
	}
	w := d.arb.Warnings(j.id)
	return ipc.WarningsReply{Idle: w.Idle, Aged: w.Aged, IdleText: ipc.MakeText(w.IdleText), AgedText: ipc.MakeText(w.AgedText)}, nil
}
