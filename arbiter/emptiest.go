package arbiter

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file finds the device with the most free memory: for a job that shares it (`gpuarb run --device emptiest`), and for messages to
// programs that have no room where they are. jobs.go calls emptiest; explain.go, refuse.go and notice.go look for room elsewhere.

// emptiest returns that of the given devices on which a new job would be granted most memory; the first one of equal devices. Jobs that were
// given a device and have not allocated there yet count, so that jobs that start together spread: their budgets are subtracted, and jobs
// whose budget is the whole device share what is free with the new job in equal parts. If the request has a memory.max in bytes, a device
// with less memory than that is chosen only if all devices have less.
func (a *Arbiter) emptiest(now time.Time, r *JobRequest, from []*device) (best *device) {
	left, sharers := make(map[*device]int64, len(from)), make(map[*device]int64, len(from))
	for _, j := range a.jobs {
		for _, d := range j.devices {
			if planned := j.planned(d); planned < d.grantable() {
				left[d] -= int64(planned)
			} else {
				sharers[d]++
			}
		}
	}
	bestFits := false // best has the bytes of the request's memory.max
	for _, d := range from {
		left[d] += int64(a.free(now, d))
		if left[d] > 0 {
			left[d] /= 1 + sharers[d]
		}
		fits := r.Max == nil || !r.Max.IsAbsolute() || r.Max.Bytes <= d.grantable()
		if best == nil || fits && !bestFits || fits == bestFits && left[d] > left[best] {
			best, bestFits = d, fits
		}
	}
	return best
}

// planned returns the bytes that a job is expected to allocate on one of its devices: its budget there, less its reservation, which counts
// already. It returns 0 once the job has allocated something there.
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

// elsewhere returns the other device with the most free memory on which a job would have room at once: for what it has on a device, and n
// bytes more; nil: no device has. Only devices of the same vendor count, because a program can use any of these. For a job that claims
// devices, or uses one alone, elsewhere returns nil, because the job has chosen its devices. For a job in a container it returns nil,
// because the container may not have other devices.
func (a *Arbiter) elsewhere(now time.Time, j *job, at *device, n accounting.Bytes) (best *device) {
	r := &j.request
	if !at.IsGPU() || r.Claim || r.Any || r.Exclusive || r.Process.Container != "" {
		return nil
	}
	need := cmp.Or(j.committed(at).Plus(n), at.contextRoom(), 1) // a program that has nothing yet will need something
	var most accounting.Bytes
	for _, d := range a.devices {
		if d == at || d.Vendor != at.Vendor || d.hung || !j.Rule.Devices.Has(d.Device) {
			continue
		}
		if free := a.freeBeside(now, d); free >= need && free > most && j.fitsShares(d, need) {
			best, most = d, free
		}
	}
	return best
}

// fitsShares reports whether the budget of a job allows n bytes on a device, and whether its shared budgets have n bytes left there.
func (j *job) fitsShares(d *device, n accounting.Bytes) bool {
	if j.Memory(d.bounds()).Max < n {
		return false
	}
	for s := range j.shares {
		if s.limits(d).Max.Less(s.budget.Account(d.Index).Committed) < n {
			return false
		}
	}
	return true
}

// roomElsewhere says which other device has room for a job, with the command that uses it; "": none has.
func (a *Arbiter) roomElsewhere(now time.Time, j *job, at *device, n accounting.Bytes) string {
	d := a.elsewhere(now, j, at, n)
	if d == nil {
		return ""
	}
	return fmt.Sprintf(wording.RoomElsewhere, d, a.free(now, d).Human(), d.Index)
}
