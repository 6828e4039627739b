package arbiter

import (
	"slices"

	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// This file answers questions about single jobs: whether their memory is on their devices, and whether and how they can give it back. It
// changes nothing. gaveback.go has the amounts. suspend.go and returns.go change the residence of jobs, and call this file. So does
// evict.go.

// JobProcess returns the process for which the rule of a job was chosen. It returns false for an unknown job.
func (a *Arbiter) JobProcess(id JobID) (rules.Process, bool) {
	if j := a.jobs[id]; j != nil {
		return j.request.Process, true
	}
	return rules.Process{}, false
}

// residence returns where the memory of a job is, and Resident for jobs that were never asked to give it back.
func (j *job) residence() Residence {
	if j.suspension == nil {
		return Resident
	}
	return j.suspension.state
}

// evict returns the settings by which a job gives its memory back and takes it again. They are those of its rule. If the policy has changed
// since the job was suspended and its rule now has another way (or none), they are those with which it was suspended.
func (j *job) evict() *rules.Evict {
	if s := j.suspension; j.residence() != Resident && s.evict.Evicts() && s.evict.How != j.Rule.Evict.How {
		return &s.evict
	}
	return &j.Rule.Evict
}

// byUnit reports whether a job gives its memory back by the end of its unit.
func (j *job) byUnit() bool { return j.evict().How == rules.EvictByUnit }

// contextsAway returns how many of the contexts that a job had on a device when it was asked to give its memory back are missing now.
func (j *job) contextsAway(d *device) int {
	n := j.suspension.had[d].contexts
	for l := range j.leasesOn(d) {
		n -= l.contexts
	}
	return max(0, n)
}

// unit returns the systemd unit in which all processes of a job run; "": they run in no unit, or in several.
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

// outlives reports whether a job stays when its last process ends, because its unit was stopped to suspend it, and can be started again.
func (j *job) outlives() bool { return j.residence() != Resident && j.byUnit() }

// returnsOnStart reports whether a job is suspended with its unit stopped, so that it returns when its next process starts.
func (j *job) returnsOnStart() bool { return j.residence() == Suspended && j.byUnit() }

// noUnit reports whether the rule of a job says that its unit is stopped to suspend it, but the job has no unit, or shares it with other
// jobs.
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

// keepsPlace reports whether a job or a process of it has a reservation, or the job has a claim or the sole use of a device. Such a job
// cannot be suspended.
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
