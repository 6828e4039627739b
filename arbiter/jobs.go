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

// This file has the calls of the daemon about jobs: it checks the request for a job, opens it, and closes it. open.go and end.go change the books.

// OpenJob opens a job, or has it wait for what it takes at its start. A *Result tells
// that more was asked than the rule allows (ReasonDenied), that it will never have room,
// or that it would have to wait and is not to (ReasonBusy); ErrRange, that the request
// makes no sense; ErrNoDevice, that there is no device for it.
func (a *Arbiter) OpenJob(now time.Time, r JobRequest) (JobInfo, error) {
	info, err := a.openJob(now, r)
	p := r.Process
	p.Exe, p.Command = "", cmp.Or(r.Command, p.Command) // what it is to run, not who runs it
	a.startRefused(now, &session{process: p, job: &job{request: r}}, err)
	return info, err
}

func (a *Arbiter) openJob(now time.Time, r JobRequest) (JobInfo, error) {
	defer a.cycle(now)
	rule := a.policy.For(r.Process)
	if err := a.checkJob(r, rule); err != nil {
		return JobInfo{}, err
	}
	from, err := a.choice(r)
	if err != nil {
		return JobInfo{}, err
	}
	all := len(from)
	if from, err = a.reservable(r, rule, from); err != nil {
		return JobInfo{}, err
	}
	j := &job{id: a.lastJob + 1, request: r, Job: rules.Job{Rule: rule}, run: true, pending: true}
	// Whether the job fits is not judged on a lost device. So the job must not come to use it when the device is back: it would
	// reserve and keep things there that were never found to fit.
	lost := len(from) > 0 && slices.ContainsFunc(a.devices, func(d *device) bool { return d.lost && d.IsGPU() })
	if !r.Any && (len(r.Devices) > 0 || len(from) < all || lost) {
		j.devices = from
	}
	a.newJob(now, j)
	t := &ticket{kind: wantsJob, job: j, place: r.Place, any: r.Any}
	for _, d := range from {
		if j.keeps(d) || j.Memory(d.bounds()).Min > 0 || j.shared != nil && j.shared.limits(d).Min > 0 {
			t.candidates = append(t.candidates, candidate{device: d})
		}
	}
	a.ask(now, t)
	answer := t.result()
	switch {
	case answer.Reason != ReasonNone:
		return JobInfo{}, &answer
	case answer.Waiting != 0:
		return JobInfo{ID: j.id, Waiting: answer.Waiting}, nil
	}
	return *answer.Job, nil
}

// NoExports reports whether the job's rule gives its programs the library without exported driver functions.
func (a *Arbiter) NoExports(id JobID) bool {
	j := a.jobs[id]
	return j != nil && j.Rule.NoExports
}

// CommandEnded marks a job whose command has ended while other processes of the job may go on. stillRuns names one of these
// that has no session, as "ssh-agent[4711]"; "": none is known. Unknown jobs are ignored.
func (a *Arbiter) CommandEnded(id JobID, stillRuns string) {
	if j := a.jobs[id]; j != nil {
		j.commandEnded, j.survivor = true, stillRuns
	}
}

// CloseJob tells that the runner is gone; the job ends with its last process, one that
// waits for its start at once. Unknown jobs are ignored.
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

// checkJob tells whether the rule allows what a job asks.
func (a *Arbiter) checkJob(r JobRequest, rule *rules.Terms) error {
	if r.Streams < 0 {
		return rules.Wrong(rules.ErrRange, wording.StreamsTooFew, r.Streams)
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
		if !r.mentions(d) {
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

// reservable leaves those of a job's devices on which what it reserves can be used in full.
// Where it names its devices, that must be all of them; else at least one.
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

// neverReserves tells why a job's reservation can never be had on a device, or used in full, and
// the most that could be.
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
