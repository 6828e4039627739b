package arbiter

import (
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// This file chooses the device with the most free memory for a job that shares it (`gpuarb run --device emptiest`). jobs.go calls it.

// emptiest returns the one of some devices with the most memory that a new job would be granted. It subtracts the budgets of jobs that were
// given the device and have not allocated there yet, so that jobs that start together spread. Of equal devices it returns the first. A
// device that the memory.max of the request exceeds counts only if all of them are too small.
func (a *Arbiter) emptiest(now time.Time, r *JobRequest, from []*device) (best *device) {
	left := make(map[*device]int64, len(from))
	for _, j := range a.jobs {
		for _, d := range j.devices {
			left[d] -= int64(j.planned(d))
		}
	}
	large := false // best is not too small
	for _, d := range from {
		left[d] += int64(a.free(now, d))
		fits := r.Max == nil || !r.Max.IsAbsolute() || r.Max.Bytes <= d.grantable()
		if best == nil || fits && !large || fits == large && left[d] > left[best] {
			best, large = d, fits
		}
	}
	return best
}

// planned returns the bytes that a job is expected to allocate on one of its devices: its budget there, without its reservation, until it
// has allocated something.
func (j *job) planned(d *device) accounting.Bytes {
	if !j.run || j.released || j.ended || !d.IsGPU() || j.hasUsed(d) {
		return 0
	}
	most := min(j.Memory(d.bounds()).Max, j.newProcess().Memory(d.bounds()).Max, d.grantable())
	for s := range j.shares {
		most = min(most, s.limits(d).Max)
	}
	return most.Less(j.limits(d).Least())
}

// hasUsed reports whether a job has allocated memory on a device.
func (j *job) hasUsed(d *device) bool {
	for l := range j.leasesOn(d) {
		if l.Granted() > 0 {
			return true
		}
	}
	return slices.ContainsFunc(j.used, func(u *jobUse) bool { return u.device == d && u.max > 0 })
}
