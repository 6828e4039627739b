package arbiter

import (
	"slices"

	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// This file says where the memory of jobs is, and whether and how they can give it back. It changes nothing. gaveback.go has the amounts, and
// returns.go and suspend.go change the residence of jobs.

// JobProcess returns the process for which the rule of a job was chosen. It returns false for an unknown job.
func (a *Arbiter) JobProcess(id JobID) (rules.Process, bool) {
	if j := a.jobs[id]; j != nil {
		return j.request.Process, true
	}
	return rules.Process{}, false
}

// residence returns where the memory of a job is.
func (j *job) residence() Residence {
	if j.suspension == nil {
		return Resident
	}
	return j.suspension.state
}

// evict returns how a job gives its memory back. A suspended job returns in the way in which it left, also if its rule has another way by now.
func (j *job) evict() *rules.Evict {
	if s := j.suspension; j.residence() != Resident && s.evict.Evicts() && s.evict.How != j.Rule.Evict.How {
		return &s.evict
	}
	return &j.Rule.Evict
}

// byUnit reports whether a job gives its memory back by the end of its unit.
func (j *job) byUnit() bool { return j.evict().How == rules.EvictByUnit }

// contextsAway returns how many contexts fewer a suspended job has on a device than when it was asked to give its memory back.
func (j *job) contextsAway(d *device) int {
	n := j.suspension.had[d].contexts
	for l := range j.leasesOn(d) {
		n -= l.contexts
	}
	return max(0, n)
}

// unit returns the systemd unit in which all processes of a job run; "": there is none.
func (j *job) unit() string {
	name := j.request.Process.Unit
	for _, s := range j.sessions {
		if s.alive() && s.process.Unit != name {
			return ""
		}
	}
	return name
}

// sharesUnit reports whether a process of another job runs in a unit.
func (a *Arbiter) sharesUnit(j *job, unit string) bool {
	for _, s := range a.sessions {
		if s.job != j && s.alive() && s.process.Unit == unit {
			return true
		}
	}
	return false
}

// outlives reports whether a job stays although its last process has ended: its unit was stopped, and will be started again.
func (j *job) outlives() bool { return j.residence() != Resident && j.byUnit() }

// returnsOnStart reports whether a suspended job returns with the start of its next process, because that is in its unit.
func (j *job) returnsOnStart() bool { return j.residence() == Suspended && j.byUnit() }

// noUnit reports whether a job would give its memory back by the end of its unit, but has none for itself.
func (a *Arbiter) noUnit(j *job) bool {
	unit := j.unit()
	return j.byUnit() && (unit == "" || a.sharesUnit(j, unit))
}

// returning returns the waiting request with which a job returns; nil: there is none.
func (a *Arbiter) returning(j *job) *ticket {
	if i := slices.IndexFunc(j.tickets, func(t *ticket) bool { return t.kind == wantsReturn }); i >= 0 {
		return j.tickets[i]
	}
	return nil
}

// keepsPlace reports whether a job has a reservation, a claim, or the sole use of a device. It cannot be suspended then.
func (a *Arbiter) keepsPlace(j *job) bool {
	for _, d := range a.devices {
		if j.budget.Limits(d.Index).Least() > 0 {
			return true
		}
		for _, s := range j.sessions {
			if s.alive() && s.budget.Limits(d.Index).Least() > 0 {
				return true
			}
		}
		for o := range d.permits[permit.Claim] {
			if o.Job == j {
				return true
			}
		}
		for o := range d.permits[permit.Sole] {
			if o.Job == j {
				return true
			}
		}
	}
	return false
}
