package arbiter

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/threads"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// choice returns the devices among which a job chooses, in its order of preference, or
// which it asks for.
func (a *Arbiter) choice(r JobRequest) ([]*device, error) {
	var from []*device
	for _, index := range r.Devices {
		d := a.device(index)
		if d == nil || d.lost && !r.Any {
			return nil, noDevice(index)
		}
		if !d.IsGPU() && (r.Any || r.Claim) {
			return nil, fmt.Errorf(wording.NoGPUToClaim, d, ErrNoDevice)
		}
		divided := a.divided(d)
		if divided && !r.Any {
			return nil, fmt.Errorf(wording.Divided, d, ErrNoDevice)
		}
		if !d.lost && !divided && !slices.Contains(from, d) {
			from = append(from, d)
		}
	}
	if len(r.Devices) == 0 {
		for _, d := range a.devices {
			if !d.lost && d.IsGPU() && !a.divided(d) {
				from = append(from, d)
			}
		}
	}
	switch none := len(from) == 0; {
	case none && (r.Any || r.Claim || r.Exclusive):
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

// divided reports whether MIG has made instances of a device, which programs see in its place.
func (a *Arbiter) divided(of *device) bool {
	return slices.ContainsFunc(a.devices, func(d *device) bool { return d.Parent != nil && *d.Parent == of.Index && !d.lost })
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

// keeps reports whether a job takes a slot of a device at its start and keeps it to its
// end: by claim, to be alone there, or, where slots are jobs', where there is a cap and on a
// device that it names or has memory reserved on. One that never waits keeps all of its own,
// whosever slots are: nobody is to have them when its program comes to use them. A memory.min that is changed
// while the job runs takes no slot and gives none back, so that a restart of the daemon does not either.
func (j *job) keeps(d *device) bool {
	if !j.run || j.released || j.ended || d.lost || !j.given(d) {
		return false
	}
	r := &j.request
	if r.Exclusive || r.Claim || r.Any || r.NoWait {
		return true
	}
	atStart := j.Job
	atStart.Live = nil
	return j.width(d) == 0 && (d.slotsMax() > 0 || len(r.Devices) > 0 || atStart.Memory(d.bounds()).Min > 0)
}

// asks are the permits that a job takes of each device that it keeps.
func (j *job) asks() permit.Kinds {
	r := &j.request
	return permit.Kinds{permit.Slot: true, permit.Claim: r.Claim || r.Any, permit.Sole: r.Exclusive}
}

// keepsSpare reports whether what a job keeps of a device is for the first of its processes or
// threads alone, as slots there are not jobs'.
func (j *job) keepsSpare(d *device) bool {
	r := &j.request
	return r.NoWait && !r.Exclusive && !r.Claim && !r.Any && j.width(d) > 0
}

// width is the width of the slots that rules give a job on a device.
func (j *job) width(d *device) int { return width(cmp.Or(j.Rule.SlotScope, d.rule.SlotScope)) }

// ReleaseJob takes back what a job holds beyond its processes: claim, slots and
// reservation. One that waits for its start leaves the queue. Unknown jobs are ignored.
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
	a.letGo(now, j)
	a.renew(now, func(x *job) bool { return x == j }, false)
}

// letGo takes back the slots, claims and devices that a job keeps. Where its processes
// have objects it stays a holder for them.
func (a *Arbiter) letGo(now time.Time, j *job) {
	for _, d := range a.devices {
		h := d.holder(owner{Job: j})
		if h == nil || !h.kept {
			continue
		}
		h.kept = false
		a.changed()
		delete(d.permits[permit.Claim], h.owner)
		delete(d.permits[permit.Sole], h.owner)
		if !a.busy(h) {
			a.drop(now, h)
			continue
		}
		for _, s := range j.sessions {
			for _, l := range s.leases {
				a.reflag(l)
			}
		}
	}
}

// leave takes back the slots of a session that has ended.
func (a *Arbiter) leave(now time.Time, s *session) {
	for _, l := range s.leases {
		for thread := range l.makers.All() {
			if h := l.device.holder(l.owner(thread)); h != nil {
				a.drop(now, h)
			}
		}
		if h := l.device.holder(owner{Job: s.job, Process: s}); h != nil {
			a.drop(now, h)
		}
		if h := l.slot; h != nil {
			l.slot = nil
			if !a.busy(h) {
				a.drop(now, h)
			}
		}
		a.forgotten(l, l.makers.Len())
		l.makers = threads.Set{}
	}
}

// notItsDevice refuses a lease on a device that its job was not given.
func (j *job) notItsDevice(d *device) *Result {
	var given []string
	for _, x := range j.on {
		given = append(given, fmt.Sprint(x.Index))
	}
	return &Result{Reason: ReasonDenied, Explain: fmt.Sprintf(wording.NotGiven, d, j.id, strings.Join(given, ", "))}
}

// holdsNothing reports whether a job has no memory in use yet and none reserved: who waits
// as one sets nothing aside against those that run.
func (a *Arbiter) holdsNothing(j *job) bool {
	for _, d := range a.devices {
		if j.budget.Account(d.Index).Committed == 0 {
			continue
		}
		if j.limits(d).Min > 0 {
			return false
		}
		for l := range j.leasesOn(d) {
			if l.Granted() > a.idle(l) || l.session.limits(d).Min > 0 {
				return false
			}
		}
	}
	return true
}
