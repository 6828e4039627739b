package arbiter

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file has the daemon's calls about jobs: it checks the request for a job, opens the job, and closes it. open.go and end.go change the
// state.

// OpenJob opens a job, or lets it wait for its permits and reservation. A *Result: the job asks for more than its rule allows
// (ReasonDenied), can never have room, or would have to wait and may not (ReasonBusy). ErrRange: the request makes no sense. ErrNoDevice:
// there is no device for it.
func (a *Arbiter) OpenJob(now time.Time, r JobRequest) (JobInfo, error) {
	info, err := a.openJob(now, r)
	p := r.Process
	p.Exe, p.Command = "", cmp.Or(r.Command, p.Command) // the command of the job, and not the runner
	a.startRefused(now, &session{process: &p, job: &job{request: r}}, err)
	return info, err
}

// openJob does the work of OpenJob, without counting a refusal.
func (a *Arbiter) openJob(now time.Time, r JobRequest) (JobInfo, error) {
	defer a.cycle(now)
	rule := a.policy.For(r.Process)
	if err := a.checkJob(r, rule); err != nil {
		return JobInfo{}, err
	}
	from, err := a.choice(r, rule)
	if err != nil {
		return JobInfo{}, err
	}
	from = a.narrowed(&r, rule, from)
	if in := a.jobs[r.Around]; in != nil {
		if from, err = in.only(r, from); err != nil {
			return JobInfo{}, err
		}
	}
	all := len(from)
	if from, err = a.reservable(r, rule, from); err != nil {
		return JobInfo{}, err
	}
	if r.Emptiest && len(from) > 0 {
		from = []*device{a.emptiest(now, &r, from)}
	}
	j := &job{id: a.lastJob + 1, request: r, Job: rules.Job{Rule: rule}, run: true, pending: true}
	// The job is not evaluated on lost devices. So it must not use them when they come back: it would reserve memory and keep slots there
	// without an evaluation.
	lost := len(from) > 0 && slices.ContainsFunc(a.devices, func(d *device) bool { return d.lost && d.IsGPU() })
	if !r.Any && (len(r.Devices) > 0 || a.jobs[r.Around].limitsDevices() || len(from) < all || lost || rule.Devices != "" || r.Emptiest) {
		j.devices = from
	}
	a.newJob(now, j)
	t := &ticket{kind: wantsJob, job: j, place: r.Place, any: r.Any, noWait: r.OpenNow}
	for _, d := range from {
		if j.keeps(d) || j.reservesOn(d) && j.Memory(d.bounds()).Min > 0 || j.shared != nil && j.shared.limits(d).Min > 0 || j.returnsOnStart() && j.wantsBack(d) > 0 {
			t.candidates = append(t.candidates, candidate{device: d})
		}
	}
	a.decideNew(now, t)
	answer := t.result()
	switch {
	case answer.Reason != ReasonNone:
		return JobInfo{}, &answer
	case answer.Waiting != 0:
		return JobInfo{ID: j.id, Waiting: answer.Waiting}, nil
	}
	return *answer.Job, nil
}

// StartAwaits returns a device on which a job that must begin at once lacks room for its reservation only because of contexts that no reading
// has shown yet. The daemon waits for a reading of the device before it opens the job. False: there is no such device, or the job has room
// on another one.
func (a *Arbiter) StartAwaits(r JobRequest) (index int, awaits bool) {
	rule := a.policy.For(r.Process)
	from, err := a.choice(r, rule)
	if err != nil || !r.NoWait && !r.OpenNow {
		return 0, false
	}
	for _, d := range a.narrowed(&r, rule, from) {
		b := d.bounds()
		least := rule.Memory(b).Min
		if r.Min != nil {
			least = b.Reserves(*r.Min)
		}
		free := a.ledger.Available(nil, d.Index)
		need := least.Plus(d.headroomCost())
		if least > 0 && need <= free && (r.Any || r.Emptiest) {
			return 0, false
		}
		shown := least.Plus(d.contextCost()) // a guess for headroom goes with the reading, too
		if least > 0 && need > free && shown <= free.Plus(a.assumed(d)) && a.assumed(d) > 0 && !d.hung && !d.unnamed && !awaits {
			index, awaits = d.Index, true
		}
	}
	return index, awaits
}

// NoExports reports whether the rule of a job gives its programs the library without exported driver functions.
func (a *Arbiter) NoExports(id JobID) bool {
	j := a.jobs[id]
	return j != nil && j.Rule.NoExports
}

// CommandEnded records that the command of a job has ended while other processes may go on. stillRuns names such a process without a
// session, as "ssh-agent[4711]"; "": none is known. Unknown jobs are ignored.
func (a *Arbiter) CommandEnded(id JobID, stillRuns string) {
	if j := a.jobs[id]; j != nil {
		j.commandEnded, j.survivor = true, stillRuns
	}
}

// CloseJob records that the runner of a job has exited. The job ends with its last process. A job that waits to start ends at once. Unknown
// jobs are ignored.
func (a *Arbiter) CloseJob(now time.Time, id JobID) {
	j := a.jobs[id]
	if j == nil {
		return
	}
	defer a.cycle(now)
	j.closed = true
	if !a.cancelStart(now, j) {
		a.endJob(now, j)
	}
}

// JobsIn returns the jobs of programs that were opened before the job of a cgroup: all their live processes run in the cgroup, and they are
// inside the job around; 0: inside none. A job of a cgroup that was closed while its programs run is one of them.
func (a *Arbiter) JobsIn(cgroup string, around JobID) (ids []JobID) {
	for _, id := range a.Jobs() {
		j, live := a.jobs[id], 0
		if j.request.Cgroup != "" && !j.closed || j.around != a.jobs[around] {
			continue
		}
		out := slices.ContainsFunc(j.sessions, func(s *session) bool {
			if s.alive() {
				live++
			}
			return s.alive() && !s.process.InCgroup(cgroup)
		})
		if live > 0 && !out {
			ids = append(ids, id)
		}
	}
	return ids
}

// Enclose puts a job inside the job of a cgroup that was opened later, around its own cgroup. The outer job is charged with what
// the inner one holds, even if that exceeds the limits. Unknown jobs are ignored.
func (a *Arbiter) Enclose(now time.Time, id, around JobID) {
	j, in := a.jobs[id], a.jobs[around]
	if j == nil || in == nil || j == in {
		return
	}
	defer a.cycle(now)
	a.moveInside(now, j, in)
}

// checkJob returns an error if the rule does not allow what a job asks for.
func (a *Arbiter) checkJob(r JobRequest, rule *rules.Terms) error {
	if r.Streams < 0 {
		return rules.Wrong(rules.ErrRange, wording.StreamsTooFew, r.Streams)
	}
	if in := a.jobs[r.Around]; in != nil && (r.Cgroup == "" || r.FromInside) {
		if err := a.checkInside(r, in); err != nil {
			return err
		}
	}
	if r.Process.MayPass() {
		return nil
	}
	if r.Priority > 0 {
		return &Result{Reason: ReasonDenied, Explain: fmt.Sprintf(wording.PriorityDenied, r.Priority)}
	}
	for _, d := range a.devices {
		if r.Max == nil || r.Max.Max {
			break
		}
		if !r.mentions(d) || !rule.Devices.Has(d.Device) {
			continue
		}
		if ask, most := d.bounds().Amount(*r.Max), rule.Memory(d.bounds()).Max; ask > most {
			return &Result{Reason: ReasonDenied, Requested: ask, Remaining: most, Limit: most,
				Explain: fmt.Sprintf(wording.BudgetBeyondRule, ask.Human(), d, rule.Name, most.Human())}
		}
	}
	if most := rule.Streams().Max; r.Streams > most {
		return &Result{Reason: ReasonDenied, Explain: fmt.Sprintf(wording.StreamsBeyondRule, r.Streams, rule.Name, most)}
	}
	return nil
}

// checkInside returns an error if a program inside the job of a cgroup asks for a job that would pass that job, or one around it, by: for a
// device as a whole, or for a reservation that is not part of that job's. The opener of each of these jobs can allow it.
func (a *Arbiter) checkInside(r JobRequest, in *job) error {
	for at := in; at != nil; at = at.around {
		what := ""
		switch allows := at.request.Allows; {
		case (r.Claim || r.Any) && !allows.Claim:
			what = wording.InsideClaims
		case r.Exclusive && !allows.Exclusive:
			what = wording.InsideExclusive
		default:
			continue
		}
		return &Result{Reason: ReasonDenied, Explain: fmt.Sprintf(wording.InsideJob, at.name(), what)}
	}
	if r.Min == nil {
		return nil
	}
	for _, d := range a.devices {
		if err := a.checkReserve(in, d, d.bounds().Reserves(*r.Min)); err != nil {
			return err
		}
	}
	return nil
}

// checkReserve returns an error if n bytes on a device cannot be reserved inside a job of a cgroup. The bytes that do not fit into the job's
// own reservation are reserved in the job around it.
func (a *Arbiter) checkReserve(j *job, d *device, n accounting.Bytes) error {
	if !d.IsGPU() || !j.usesAround(d) {
		return nil
	}
	for ; j != nil; j = j.around {
		left := j.budget.Limits(d.Index).Least().Less(a.loadInUse(j, d))
		if n > left && !j.request.Allows.Reserve {
			return &Result{Reason: ReasonDenied, Explain: fmt.Sprintf(wording.InsideJob, j.name(), fmt.Sprintf(wording.InsideReserves, left.Human(), d))}
		}
		n = n.Less(left)
	}
	return nil
}

// loadInUse returns how many bytes on a device the programs of a job and the jobs inside it hold or have reserved. Charges for unmanaged
// processes are included. The job's own reservation does not count. Idle credit does not count either, because a reservation inside the
// job can recall that credit.
func (a *Arbiter) loadInUse(j *job, d *device) accounting.Bytes {
	sum := j.budget.Charged(d.Index)
	for _, s := range j.sessions {
		held := accounting.Bytes(0)
		if l := s.leaseOn(d); l != nil {
			held = l.Granted().Plus(l.Charged()).Less(a.idle(l))
		}
		sum = sum.Plus(max(held, s.budget.Limits(d.Index).Least()))
	}
	for _, in := range j.inside {
		sum = sum.Plus(max(a.loadInUse(in, d), in.budget.Limits(d.Index).Least()))
	}
	return sum
}

// reservable returns the devices in from on which the job's reservation can be used in full. If the job names its devices, all of them must
// be returned; else at least one.
func (a *Arbiter) reservable(r JobRequest, rule *rules.Terms, from []*device) (fit []*device, err error) {
	if r.Min == nil || len(from) == 0 {
		return from, nil
	}
	var refused error
	var most accounting.Bytes
	for _, d := range from {
		room, why := a.neverReserves(r, rule, d)
		if why == nil {
			fit = append(fit, d)
		} else if refused == nil || room > most {
			refused, most = why, room
		}
	}
	if len(fit) == 0 || len(fit) < len(from) && len(r.Devices) > 0 && !r.Any {
		return nil, refused
	}
	return fit, nil
}

// neverReserves returns nil and the reservation if a job can have its reservation on a device and use it in full. Otherwise it returns the
// error and the most that could be reserved.
func (a *Arbiter) neverReserves(r JobRequest, rule *rules.Terms, d *device) (room accounting.Bytes, why error) {
	b := d.bounds()
	least, ask := b.Reserves(*r.Min), rule.Memory(b).Max
	if r.Max != nil {
		ask = min(ask, b.Amount(*r.Max))
		if r.Process.MayPass() {
			ask = b.Amount(*r.Max)
		}
	}
	switch most := b.Reservable; {
	case least > ask && !r.Min.Max:
		return ask, rules.Wrong(rules.ErrRange, wording.MinAboveMax, least.Human(), ask.Human(), d)
	case least > most:
		return most, &Result{Reason: ReasonTooLarge, Requested: least, Remaining: most, Limit: d.grantable(), Explain: d.tooMuch(least)}
	}
	return least, nil
}
