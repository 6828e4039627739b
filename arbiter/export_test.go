package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// This file has no test. It gives package arbiter_test shorter calls of the arbiter: readings in one step, limits by kind of owner, sorted
// snapshots, and an admission cycle at once. fake_test.go has the clients.

// Observe applies a reading of a device, without a record of what leases used just before.
func (a *Arbiter) Observe(now time.Time, u Usage) {
	if d := a.device(u.Device); d != nil {
		r := &Reading{a: a, device: d}
		r.Figures(u)
		r.Apply(now)
	}
}

// Note records what each lease on a device uses just before the reading of the next Observe. A free that finishes during the reading then
// does not look like overhead.
func (a *Arbiter) Note(device int) { a.Reading(device) }

// Finish runs the admission cycle at once, also if an earlier call has put it off.
func (a *Arbiter) Finish(now time.Time) {
	a.cycleNeeded = true
	a.cycle(now)
}

// WaitsForBytes reports whether a ticket was refused for bytes on a device when it was last evaluated.
func (a *Arbiter) WaitsForBytes(id TicketID, device int) bool {
	for i := range a.tickets[id].candidates {
		if s := &a.tickets[id].candidates[i]; s.device.Index == device {
			return s.waitsForBytes()
		}
	}
	return false
}

// JudgeAll evaluates all waiting requests again.
func (a *Arbiter) JudgeAll(now time.Time) {
	a.changed()
	a.cycle(now)
}

// SetJobLimits, SetProcessLimits, SetUserLimits, SetCgroupLimits, SetRuleLimits and SetSlots change limits of one kind of owner.
func (a *Arbiter) SetJobLimits(now time.Time, id JobID, c rules.Change) error {
	return a.SetLimits(now, rules.Owner{Kind: rules.OfJob, ID: uint64(id)}, "", c)
}

// SetProcessLimits changes the limits of the process of some sessions.
func (a *Arbiter) SetProcessLimits(now time.Time, c rules.Change, ids ...SessionID) error {
	var of rules.Owner
	for _, id := range ids {
		s := a.sessions[id]
		if s == nil || !s.alive() {
			return noSession(id)
		}
		of = s.limitOwner()
	}
	return a.SetLimits(now, of, "", c)
}

func (a *Arbiter) SetUserLimits(now time.Time, uid uint32, name string, c rules.Change) error {
	return a.SetLimits(now, userOwner(uid), name, c)
}

func (a *Arbiter) SetCgroupLimits(now time.Time, path string, c rules.Change) error {
	return a.SetLimits(now, cgroupOwner(path), "", c)
}

func (a *Arbiter) SetRuleLimits(now time.Time, id uint64, c rules.Change) error {
	return a.SetLimits(now, rules.Owner{Kind: rules.OfRule, ID: id}, "", c)
}

// SetSlots sets slots.max of a device, as root.
func (a *Arbiter) SetSlots(now time.Time, device, most int) error {
	return a.SetLimits(now, rules.Owner{Kind: rules.OfDevice, ID: uint64(device)}, "", rules.Change{Device: device, Slots: &most})
}

// Snapshot returns the whole state, sorted.
func (a *Arbiter) Snapshot(now time.Time) figures.Snapshot {
	s := a.Copy(now)
	s.Arrange()
	return s
}

// SnapshotOfLeases returns the state of all leases, sorted.
func (a *Arbiter) SnapshotOfLeases(now time.Time) figures.Snapshot {
	s := a.CopyOfLeases(now)
	s.Arrange()
	return s
}

// Sums returns the ledger's sums of a job on a device, with those of all jobs inside it. The rows of a snapshot show only what a job's own programs
// use.
func (a *Arbiter) Sums(id JobID, device int) accounting.Account {
	return a.jobs[id].budget.Account(device)
}
