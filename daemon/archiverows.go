package daemon

// This file makes the rows of the history from accounts of jobs and figures of devices. archive.go calls it.

import (
	"fmt"
	"sync"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/archive/rows"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/statefile"
)

// bootID is the name of this boot; "": not known.
var bootID = sync.OnceValue(statefile.BootID)

// rowOf returns the row of a job. namesOnly: leave out the arguments of the command, and hash the name of a script. rowOf may wait for the
// user database: the records of a job whose processes ended while no daemon ran have only the number of its user.
func (d *Daemon) rowOf(a *arbiter.JobAccount, namesOnly bool) rows.Job {
	p := &a.Process
	j := rows.Job{ID: uint64(a.ID), Key: a.Key, UID: p.UID, User: p.User, Name: a.Name, Command: a.Command, Program: rows.ProgramOf(a.Command), Unit: p.Unit,
		BeganMs: a.Opened.UnixMilli(), Refusal: a.Denial, LackedBy: uint64(a.Lacked)}
	if j.Key == "" { // a process without gpuarb run
		j.Key = fmt.Sprintf("%s %d %d", bootID(), p.PID, p.StartTicks)
	}
	if j.User == "" {
		j.User = d.inv.UserName(p.UID)
	}
	if len(p.Groups) > 0 {
		j.Group = p.Groups[0]
	}
	if namesOnly {
		j.Command, j.Program = figures.ProgramOf(a.Command), rows.Hidden(j.Program)
	}
	if len(a.Reasons) > 0 {
		j.Reasons = make(map[string]uint64, len(a.Reasons))
		for why, n := range a.Reasons {
			j.Reasons[why.String()] = n
		}
	}
	if !a.Ended.IsZero() {
		j.EndedMs = max(a.Ended.UnixMilli(), j.BeganMs)
		j.How, j.Code = howEnded(a)
	}
	j.Devices = usesOf(a)
	return j
}

// howEnded returns how a job ended, with the exit code or signal of its command.
func howEnded(a *arbiter.JobAccount) (how string, code int) {
	switch {
	case !a.Started:
		return rows.Refused, 0
	case a.Exit != nil && a.Exit.Signal != 0:
		return rows.Killed, a.Exit.Signal
	case a.Exit != nil:
		return rows.Exited, a.Exit.Code
	case a.Died && !a.Claim:
		return rows.Died, 0
	}
	return rows.Closed, 0
}

// usesOf returns the totals of a job by device. The last element has the counts that belong to no device. It is left out if they are 0 and
// the job has used a device.
func usesOf(a *arbiter.JobAccount) []rows.Use {
	uses := make([]rows.Use, 0, len(a.Devices)+1)
	none := rows.Use{Device: rows.NoDevice, Waits: a.Waits, WaitedMs: a.Waited.Milliseconds(), Refused: a.Refused}
	for _, d := range a.Devices {
		u := rows.Use{Device: accounting.IndexNumber(d.Device), UUID: d.UUID, Held: d.Sums.Held, Granted: d.Sums.Granted, Reserved: d.Sums.Reserved, Committed: d.Sums.Committed,
			Now: uint64(d.Held), Peak: uint64(d.Peak), Waits: d.Waits, WaitedMs: d.Waited.Milliseconds(), Refused: d.Refused, IdleMs: d.Idle.Milliseconds()}
		none.Waits, none.WaitedMs, none.Refused = none.Waits-min(u.Waits, none.Waits), max(none.WaitedMs-u.WaitedMs, 0), none.Refused-min(u.Refused, none.Refused)
		uses = append(uses, u)
	}
	if len(uses) == 0 || none.Waits > 0 || none.Refused > 0 {
		uses = append(uses, none)
	}
	return uses
}
