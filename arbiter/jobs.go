package arbiter

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

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

// startRefused tells that a job, or a process, was refused what it takes before it begins.
func (a *Arbiter) startRefused(now time.Time, s *session, err error) {
	if r := (*Result)(nil); errors.As(err, &r) && r.Reason != ReasonCrowded {
		a.countRefusal(a.person(s.job.request.Process.UID, s.job.request.Process.User), r.Reason)
		a.deniedEvent(now, s, Event{Device: -1, Reason: r.Reason, Requested: r.Requested, Remaining: r.Remaining, Limit: r.Limit}, r.Explain)
	}
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
		j.on = from
	}
	a.newJob(now, j)
	t := &ticket{kind: wantsJob, job: j, place: r.Place, any: r.Any}
	for _, d := range from {
		if j.keeps(d) || j.Memory(d.bounds()).Min > 0 || j.shared != nil && j.shared.limits(d).Min > 0 {
			t.spots = append(t.spots, spot{device: d})
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

// jobInfo describes a job that is open.
func (a *Arbiter) jobInfo(j *job) JobInfo {
	info := JobInfo{ID: j.id}
	var largest accounting.Bytes
	for _, d := range a.devices {
		if !d.lost && d.Total > largest && j.given(d) {
			largest = d.Total
			info.Budget = min(j.limits(d).Max, j.newProcess().limits(d).Max, d.grantable())
			for sh := range j.shares {
				info.Budget = min(info.Budget, sh.budget.Limits(d.Index).Max)
			}
		}
	}
	for _, d := range j.on {
		info.Devices = append(info.Devices, d.Index)
	}
	return info
}

// newProcess stands for a process of the job that begins, for the limits that it has then.
func (j *job) newProcess() *session { return &session{Client: rules.Client{In: &j.Job}, job: j} }

// limits are the job's own limits on a device, as they are in force.
func (j *job) limits(d *device) accounting.Limits {
	return inForce(j.Memory(d.bounds()), d, !j.pending && !j.released && !j.ended && j.uses(d))
}

// given reports whether a device is one of the job's from its start: those that it named or was given, else every GPU.
func (j *job) given(d *device) bool {
	if j.on == nil {
		return d.IsGPU()
	}
	return slices.Contains(j.on, d)
}

// uses reports whether a job may use a device. What a job is given are GPUs: the processor is there for each, within its limits,
// and no variable hides it from its programs.
func (j *job) uses(d *device) bool { return !d.IsGPU() || j.given(d) }

// NoExports reports whether the job's rule gives its programs the library without exported driver functions.
func (a *Arbiter) NoExports(id JobID) bool {
	j := a.jobs[id]
	return j != nil && j.Rule.NoExports
}

// JobName is how people know a job: "job 3 (python3)".
func (a *Arbiter) JobName(id JobID) string {
	if j := a.jobs[id]; j != nil {
		return j.name()
	}
	return wording.Job(uint64(id), "", "")
}

// CommandEnded marks a job whose command has ended while other processes of the job may go on. stillRuns names one of these
// that has no session, as "ssh-agent[4711]"; "": none is known. Unknown jobs are ignored.
func (a *Arbiter) CommandEnded(id JobID, stillRuns string) {
	if j := a.jobs[id]; j != nil {
		j.commandEnded, j.livesBy = true, stillRuns
	}
}

// stillRuns names the processes that go on after a job's command has ended: its clients, else the one that CommandEnded
// named; "": the command goes on, or none is known.
func (j *job) stillRuns() string {
	if !j.commandEnded {
		return ""
	}
	var names []string
	count := 0
	for _, s := range j.sessions {
		if !s.alive() {
			continue
		}
		if count++; count <= namedHolders {
			names = append(names, wording.Process(s.process.Exe, s.process.Command, "", s.process.PID))
		}
	}
	if count > 0 {
		return wording.List(names, count)
	}
	return j.livesBy
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

// cancelStart cancels the start that a job waits for. False: it does not.
func (a *Arbiter) cancelStart(now time.Time, j *job) bool {
	return a.cancelOf(now, j, func(t *ticket) bool { return t.kind == wantsJob }) > 0
}

// checkJob tells whether the rule allows what a job asks.
func (a *Arbiter) checkJob(r JobRequest, rule rules.Terms) error {
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
		if !r.names(d) {
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
func (a *Arbiter) reservable(r JobRequest, rule rules.Terms, from []*device) (fit []*device, err error) {
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
func (a *Arbiter) neverReserves(r JobRequest, rule rules.Terms, d *device) (room accounting.Bytes, why error) {
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

// newJob puts a job in place with its budgets, whether what it reserves has room or not.
func (a *Arbiter) newJob(now time.Time, j *job) {
	j.opened, j.moved = now, now
	a.joins(j)
	r := &j.request
	j.Asked = rules.Request{Max: r.Max, Min: r.Min, Streams: r.Streams, PerProcess: r.PerProcess, MayPass: r.Process.MayPass(),
		Processor: slices.ContainsFunc(j.on, func(d *device) bool { return !d.IsGPU() })}
	j.budget = a.ledger.OpenBudget(nil)
	j.budget.Owner = j
	a.link(j)
	_, _ = a.setLimits(a.jobChanges(nil, j), false)
	a.lastJob = max(a.lastJob, j.id)
	a.jobs[j.id] = j
}

// names reports whether a request is about a device, as far as its amounts go: a share of the machine's memory is much, and
// nobody means that who did not name the processor.
func (r *JobRequest) names(d *device) bool { return d.IsGPU() || slices.Contains(r.Devices, d.Index) }

// exceeds reports whether a job's request, of root's, passes its rule on any device.
func (a *Arbiter) exceeds(j *job) bool {
	r := &j.request
	return r.Max != nil && r.Process.MayPass() && slices.ContainsFunc(a.devices, func(d *device) bool {
		return r.names(d) && d.bounds().Amount(*r.Max) > j.Rule.Memory(d.bounds()).Max
	})
}

// shareFor returns the budget that the job shares with others by its rule; nil
// for none, as where root asked for more than the rule. It is made when its first job comes.
func (a *Arbiter) shareFor(j *job) *shared {
	p := &j.request.Process
	if a.exceeds(j) {
		return nil
	}
	key := sharedKey{scope: j.Rule.Scope, rule: j.Rule.Key}
	who := ""
	switch j.Rule.Scope {
	case rules.ScopeUser:
		key.uid, who = p.UID, wording.User(p.UID, p.User)
	case rules.ScopeCgroup:
		key.cgroup, who = p.Cgroup, fmt.Sprintf(wording.Cgroup, wording.Plain(p.Cgroup))
	case rules.ScopeRule:
		who = j.Rule.Key.String()
	default:
		return nil
	}
	s := a.shareds[key]
	if s == nil {
		s = a.share(&shared{key: key, who: who, budget: a.ledger.OpenBudget(nil)})
	}
	s.rule = j.Rule
	return s
}

// endJob forgets a job whose runner is gone and whose last process is dead. What it has
// reserved, its slots and its claim are free then; what still drains it holds to the end.
func (a *Arbiter) endJob(now time.Time, j *job) {
	if !j.closed || slices.ContainsFunc(j.sessions, (*session).alive) {
		return
	}
	a.jobOver(now, j)
	j.ended = true
	a.letGo(now, j)
	_, _ = a.setLimits(a.jobChanges(nil, j), false)
	if len(j.sessions) == 0 {
		a.dropJob(j)
	}
}

// dropJob takes a job without sessions out, and the shared budgets that it was the last of.
func (a *Arbiter) dropJob(j *job) {
	delete(a.jobs, j.id)
	a.leaves(j)
	a.dropBudget(j.budget)
	for sh := range j.shares {
		a.dropShared(sh)
	}
}

// dropShared takes a shared budget out when nothing is below it. It is for who shares it no longer.
func (a *Arbiter) dropShared(s *shared) {
	if s == nil {
		return
	}
	if s.budget.Empty() {
		delete(a.shareds, s.key)
		a.dropBudget(s.budget)
	}
}

// dropBudget takes a budget out of the ledger that has nothing below it.
func (a *Arbiter) dropBudget(b *accounting.Budget) {
	for _, d := range a.devices {
		delete(a.overs, account{b, d.Index})
	}
	if err := a.ledger.CloseBudget(b); err != nil {
		panic("arbiter: " + err.Error())
	}
}
