package arbiter

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file chooses the devices of a job that starts, and releases the claims and slots that a job keeps. jobs.go calls choice.

// choice returns the devices that a job asks for and that its rule allows. If any of them is enough, they are in the job's order of
// preference. A privileged user may name devices that the rule does not allow, unless one of them is enough.
func (a *Arbiter) choice(r JobRequest, rule *rules.Terms) ([]*device, error) {
	var from []*device
	one := r.Any || r.Emptiest // one of the devices is enough
	allowed := func(d *device) bool { return rule.Devices.Has(d.Device) }
	for _, index := range r.Devices {
		d := a.device(index)
		if d == nil || d.lost && !one {
			return nil, noDevice(index)
		}
		if !d.IsGPU() && (r.Any || r.Claim || r.Emptiest) {
			return nil, fmt.Errorf(wording.NoGPUToClaim, d, ErrNoDevice)
		}
		if !one && !r.Process.MayPass() && !allowed(d) {
			return nil, &Result{Reason: ReasonDenied, Explain: fmt.Sprintf(wording.DeviceNotOfRule, d, rule.Name, a.listAllowed(rule))}
		}
		if one && !allowed(d) {
			continue
		}
		divided := a.divided(d)
		if divided && !one {
			return nil, fmt.Errorf(wording.Divided, d, ErrNoDevice)
		}
		if !d.lost && !divided && !slices.Contains(from, d) {
			from = append(from, d)
		}
	}
	if len(r.Devices) == 0 {
		for _, d := range a.devices {
			if !d.lost && d.IsGPU() && allowed(d) && !a.divided(d) {
				from = append(from, d)
			}
		}
	}
	switch none := len(from) == 0; {
	case none && rule.Devices != "" && slices.ContainsFunc(a.devices, func(d *device) bool { return d.IsGPU() && !d.lost }):
		return nil, &Result{Reason: ReasonDenied, Explain: fmt.Sprintf(wording.NoDeviceOfRule, rule.Name, strings.Join(rule.Devices.Names(), ", "))}
	case none && (one || r.Claim || r.Exclusive):
		return nil, fmt.Errorf(wording.NoneToClaim, ErrNoDevice)
	case none && r.Min != nil && *r.Min != (accounting.Size{}):
		return nil, fmt.Errorf(wording.NoneToReserve, ErrNoDevice)
	}
	if r.OnlyIfNone {
		if d := a.claimedBy(r.Process.UID); d != nil {
			return nil, &Result{Reason: ReasonBusy, Explain: fmt.Sprintf(wording.HasClaim, d)}
		}
	}
	return from, nil
}

// claimedBy returns a device on which a user has a claim, or nil.
func (a *Arbiter) claimedBy(uid uint32) *device {
	for _, d := range a.devices {
		for _, h := range d.permits[permit.Claim] {
			if h.Job.request.Process.UID == uid {
				return d
			}
		}
	}
	return nil
}

// ReleaseJob takes back what a job holds in addition to its processes: claim, slots and reservation. The request of a job that waits to
// start is cancelled. Unknown jobs are ignored.
func (a *Arbiter) ReleaseJob(now time.Time, id JobID) {
	j := a.jobs[id]
	if j == nil {
		return
	}
	defer a.cycle(now)
	if a.cancelStart(now, j) {
		return
	}
	j.released = true
	a.releaseKept(now, j)
	a.renew(now, func(x *job) bool { return x == j }, false)
}
