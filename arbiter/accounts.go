package arbiter

import (
	"maps"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// This file makes the accounts of jobs for the history, from the sums that integrate.go keeps. The daemon fetches them, and end.go and refuse.go
// record the ends of jobs.

// LookAtCredit reads how much of its credit each lease uses, because a client that frees memory within its credit sends no message. It
// returns the number of leases. The daemon calls it many times a second while there are leases.
func (a *Arbiter) LookAtCredit(now time.Time) int {
	for _, l := range a.leases {
		if l.Granted()-a.idle(l) != l.lastUsed {
			a.readUsage(l)
		}
	}
	a.lookedAt = now
	return len(a.leases)
}

// LookAtUse looks at what all leases use, and whether their processes do anything. The daemon calls it once a second.
func (a *Arbiter) LookAtUse(now time.Time) {
	for _, l := range a.leases {
		a.readUsage(l)
		l.noteCalls(now)
	}
	a.lookedAt = now
	for _, j := range a.jobs {
		for _, u := range j.used {
			a.countIdle(now, j, u)
		}
	}
}

// Accounts returns the accounts of the jobs that have started and not ended, as far as they have changed since the last call. A job that
// holds or reserves something changes all the time. all: also those that have not changed.
func (a *Arbiter) Accounts(now time.Time, all bool) (accounts []JobAccount) {
	for _, j := range a.jobs {
		if !j.pending && !j.recorded && (all || j.untold || slices.ContainsFunc(j.used, func(u *jobUse) bool { return !u.meter.Idle() })) {
			j.untold = false
			accounts = append(accounts, a.accountOf(now, j))
		}
	}
	return accounts
}

// countIdle adds the time since its last call to the idle time of a job on a device, if the job holds memory there. Of that time it leaves
// out what passed before one of the job's processes last used the device.
func (a *Arbiter) countIdle(now time.Time, j *job, u *jobUse) {
	idle := now.Sub(u.looked)
	if u.looked.IsZero() || u.meter.Now.Held == 0 {
		idle = 0
	}
	u.looked = now
	for l := range j.leasesOn(u.device) {
		if l.session.alive() {
			idle = min(idle, l.unused(now))
		}
	}
	u.idle += max(idle, 0)
}

// HasPastJobs reports whether PastJobs would return accounts.
func (a *Arbiter) HasPastJobs() bool { return len(a.pastJobs) > 0 }

// PastJobs returns the accounts of the jobs that have ended since the last call. If the daemon does not call it for long, the oldest are
// dropped.
func (a *Arbiter) PastJobs() []JobAccount {
	past := a.pastJobs
	a.pastJobs = nil
	return past
}

// CommandExited records how the command of a job ended. Unknown jobs are ignored.
func (a *Arbiter) CommandExited(id JobID, exit Exit) {
	if j := a.jobs[id]; j != nil {
		j.exit = &exit
	}
}

// DeviceFigures are figures of a device for charts.
type DeviceFigures struct {
	Index                                       int
	UUID                                        string
	Used, Reserved, Grantable, Unmanaged, Total accounting.Bytes
}

// DeviceFigures returns the present figures of all devices. Reserved is what is reserved and not used.
func (a *Arbiter) DeviceFigures() []DeviceFigures {
	all := make([]DeviceFigures, 0, len(a.devices))
	for _, d := range a.devices {
		sums := a.ledger.Device(d.Index)
		all = append(all, DeviceFigures{Index: d.Index, UUID: d.UUID, Used: d.peak.used, Reserved: sums.Committed.Less(sums.Held),
			Grantable: a.ledger.Available(nil, d.Index), Unmanaged: d.unmanaged, Total: d.Total})
	}
	return all
}

// maxPast is how many accounts of ended jobs are kept for a daemon that does not fetch them. At this number the older half is dropped.
const maxPast = 8192

// recordEnd keeps the account of a job that ends. refusal is why it was refused; "": it had started, or was not refused.
func (a *Arbiter) recordEnd(now time.Time, j *job, refusal string) {
	if j.recorded || j.pending && refusal == "" {
		return
	}
	j.recorded = true
	account := a.accountOf(now, j)
	account.Ended, account.Started = now, !j.pending
	if refusal != "" {
		account.Denial = refusal
	}
	if len(a.pastJobs) >= maxPast {
		a.pastJobs = append(a.pastJobs[:0], a.pastJobs[maxPast/2:]...)
	}
	a.pastJobs = append(a.pastJobs, account)
}

// accountOf returns the account of a job.
func (a *Arbiter) accountOf(now time.Time, j *job) JobAccount {
	t := j.counted()
	account := JobAccount{ID: j.id, Process: j.request.Process, Key: j.request.Key, Command: j.request.Command, Name: j.request.Name, Run: j.run, Claim: j.request.Claim, Restored: !t.since.IsZero(), Opened: j.opened,
		Exit: j.exit, Died: j.died, Started: true, Waits: t.waits, Waited: t.waited, Refused: t.refused, Reasons: maps.Clone(t.reasons), Lacked: t.lacked}
	if j.denial != nil {
		account.Denial = j.denial.text
	}
	for _, u := range j.used {
		account.Devices = append(account.Devices, DeviceAccount{Device: u.device.Index, UUID: u.device.UUID, Sums: u.meter.At(now), Held: u.meter.Now.Held,
			Peak: u.max, Waits: u.waits, Waited: u.waited, Refused: u.refused, Idle: u.idle})
	}
	return account
}
