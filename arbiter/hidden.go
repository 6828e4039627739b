package arbiter

import (
	"slices"

	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// This file finds the devices that the environments of programs hide (CUDA_VISIBLE_DEVICES and its like). Nothing is reserved there. The
// environment is that of the process's start, and the driver may number devices in another way, so that a device may count as hidden
// although the program sees it. If the process then uses it, memory is reserved there too, if there is room; other programs keep what they
// have. renew.go puts the resulting limits in force.

// hidden returns the devices that the environment of a process hides.
func (a *Arbiter) hidden(p *rules.Process) (hidden []*device) {
	if len(p.Visible) == 0 {
		return nil
	}
	all := make([]rules.Device, len(a.devices))
	for i, d := range a.devices {
		all[i] = d.Device
	}
	for _, index := range p.Hidden(all) {
		hidden = append(hidden, a.device(index))
	}
	return hidden
}

// hiddenFrom returns the devices that the environment hides from a job, without those on which its processes have leases. It returns nil if
// the job asked for devices, because `gpuarb run` shows it these.
func (a *Arbiter) hiddenFrom(j *job) []*device {
	if r := &j.request; j.devices != nil || len(r.Devices) > 0 || r.Any || r.Emptiest {
		return nil
	}
	return slices.DeleteFunc(a.hidden(&j.request.Process), j.hasLease)
}

// narrowed returns those of the devices of a rule that the environment of a job shows. `gpuarb run` sets the environment to the result. It
// returns all of them if the environment shows none, if the rule lists no devices, or if the job asked for devices.
func (a *Arbiter) narrowed(r *JobRequest, rule *rules.Terms, from []*device) []*device {
	if rule.Devices == "" || len(r.Devices) > 0 || r.Any || r.Emptiest {
		return from
	}
	hidden := a.hidden(&r.Process)
	shown := slices.DeleteFunc(slices.Clone(from), func(d *device) bool { return slices.Contains(hidden, d) })
	if len(shown) == 0 {
		return from
	}
	return shown
}

// updateHiddenOf finds the devices that the environments of all jobs of a shared budget hide. It ignores nil.
func (a *Arbiter) updateHiddenOf(s *shared) {
	if s == nil || s.rule == nil {
		return
	}
	s.hidden = nil
	first := true
	for _, j := range a.jobs {
		if j.shared != s || j.ended {
			continue
		}
		if first {
			s.hidden, first = slices.Clone(j.hidden), false
		}
		s.hidden = slices.DeleteFunc(s.hidden, func(d *device) bool { return !slices.Contains(j.hidden, d) })
	}
}

// updateHidden finds again which devices are hidden, after a device was added.
func (a *Arbiter) updateHidden() {
	for _, j := range a.jobs {
		j.hidden = a.hiddenFrom(j)
	}
	for _, s := range a.sessions {
		s.hidden = slices.DeleteFunc(a.hidden(s.process), func(d *device) bool { return s.leaseOn(d) != nil })
	}
	for _, s := range a.shareds {
		a.updateHiddenOf(s)
	}
}

// hasLease reports whether a process of a job has a lease on a device.
func (j *job) hasLease(d *device) bool {
	return slices.ContainsFunc(j.sessions, func(s *session) bool { return s.leaseOn(d) != nil })
}

// without returns devices without one of them.
func without(of []*device, d *device) []*device {
	return slices.DeleteFunc(slices.Clone(of), func(x *device) bool { return x == d })
}
