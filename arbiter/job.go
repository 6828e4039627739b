package arbiter

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file has read-only questions about jobs and sessions: their leases, shared budgets, devices and limits, and whether their processes
// live, start, wait or run. Nearly all files with decisions call it.

// shares yields the shared budgets of all processes of a job, the narrower one first.
func (j *job) shares(yield func(*shared) bool) {
	for ; j != nil; j = j.around {
		if j.cap != nil && !yield(j.cap) || j.shared != nil && !yield(j.shared) {
			return
		}
	}
}

// binding returns the deepest job of a cgroup that is open and is j or around j; nil: there is no such job, or j is nil.
func (j *job) binding() *job {
	for ; j != nil; j = j.around {
		if j.request.Cgroup != "" && !j.closed {
			return j
		}
	}
	return nil
}

// shows reports whether a message to a program in the job within, the job of a cgroup, may name j. It may if j is that job, is inside that
// job or is around it. If within is nil, it may name all jobs.
func (within *job) shows(j *job) bool {
	return within == nil || j == within || j.isInside(within) || within.isInside(j)
}

// isInside reports whether j is inside the job in, directly or inside other jobs. A job is not inside itself.
func (j *job) isInside(in *job) bool {
	for ; j != nil; j = j.around {
		if j.around == in {
			return true
		}
	}
	return false
}

// priority returns the priority of the requests of a job: that of its rule, its own, and those of the jobs around it.
func (j *job) priority() int {
	sum := j.Rule.Priority
	for ; j != nil; j = j.around {
		sum += j.request.Priority
	}
	return sum
}

// outermost returns the outermost job around j, or j itself.
func (j *job) outermost() *job {
	for j.around != nil {
		j = j.around
	}
	return j
}

// chargesOverhead reports whether contexts and other overhead are charged to the budgets of a job: by the policy, or because the job of a
// cgroup was opened so.
func (a *Arbiter) chargesOverhead(j *job) bool { return a.policy.ChargeOverhead || j.contextsInside() }

// contextsInside reports whether a job, or a job around it, was opened with contexts inside its budget.
func (j *job) contextsInside() bool {
	for ; j != nil; j = j.around {
		if j.request.ContextsInside {
			return true
		}
	}
	return false
}

// clients yields the sessions of a job, and of the jobs inside it.
func (j *job) clients(yield func(*session) bool) {
	j.eachClient(yield)
}

// eachClient does the work of clients. It returns false after yield did.
func (j *job) eachClient(yield func(*session) bool) bool {
	for _, s := range j.sessions {
		if !yield(s) {
			return false
		}
	}
	for _, in := range j.inside {
		if !in.eachClient(yield) {
			return false
		}
	}
	return true
}

// shares yields the shared budgets of a session, the narrower ones first.
func (s *session) shares(yield func(*shared) bool) {
	for _, c := range s.cgroups {
		if !yield(c) {
			return
		}
	}
	s.job.shares(yield)
}

// among reports whether of is one of shares.
func among(shares iter.Seq[*shared], of *shared) bool {
	for sh := range shares {
		if sh == of {
			return true
		}
	}
	return false
}

// sharedOf returns the shared budget of a ledger budget; nil: b is nil, or is not a shared budget.
func sharedOf(b *accounting.Budget) *shared {
	if b == nil {
		return nil
	}
	s, _ := b.Owner.(*shared)
	return s
}

// budgetOf returns the ledger budget of a shared budget; nil if s is nil.
func budgetOf(s *shared) *accounting.Budget {
	if s == nil {
		return nil
	}
	return s.budget
}

// ofCgroup reports whether s is the cap of a cgroup. It limits the processes in the cgroup, and not their jobs.
func (s *shared) ofCgroup() bool { return s.limit != nil && s.limit.Of.Kind == rules.OfCgroup }

// describe returns the budget as part of a sentence: "user bob's budget".
func (s *shared) describe() string {
	if s.key.scope == rules.ScopeRule {
		return fmt.Sprintf(wording.SharedBudget, s.ownerName)
	}
	return fmt.Sprintf(wording.Budget, s.ownerName)
}

// alive reports whether the process of the session is not known to have ended.
func (s *session) alive() bool { return s.ended.IsZero() }

// leaseOn returns the lease of a session on a device; nil: it has none.
func (s *session) leaseOn(d *device) *lease {
	for _, l := range s.leases {
		if l.device == d {
			return l
		}
	}
	return nil
}

// leasesOn yields the leases of a job on a device.
func (j *job) leasesOn(d *device) iter.Seq[*lease] {
	return func(yield func(*lease) bool) {
		for _, s := range j.sessions {
			if l := s.leaseOn(d); l != nil && !yield(l) {
				return
			}
		}
	}
}

// owners yields the arbiter's leases that embed the given leases of the ledger.
func owners(seq iter.Seq[accounting.Holder]) iter.Seq[*lease] {
	return func(yield func(*lease) bool) {
		for h := range seq {
			if !yield(h.(*lease)) {
				return
			}
		}
	}
}

// leasesOn yields the leases on a device.
func (a *Arbiter) leasesOn(d *device) iter.Seq[*lease] {
	return owners(a.ledger.Leases(d.Index))
}

// leasesBelow yields the leases on a device below a budget; if b is nil, all leases on the device.
func (a *Arbiter) leasesBelow(b *accounting.Budget, device int) iter.Seq[*lease] {
	if b == nil {
		return owners(a.ledger.Leases(device))
	}
	return owners(b.Leases(device))
}

// assigned reports whether a device is one of the job's devices from its start. Without a choice of devices all GPUs are.
func (j *job) assigned(d *device) bool {
	if j.devices == nil {
		return d.IsGPU()
	}
	return slices.Contains(j.devices, d)
}

// uses reports whether a job may use a device. Every job may use the processor, within its limits, because no environment variable hides
// it.
func (j *job) uses(d *device) bool { return !d.IsGPU() || j.assigned(d) && j.allows(d) }

// reservesOn reports whether memory is reserved for a job on a device: the job may use it, and the environment shows it.
func (j *job) reservesOn(d *device) bool { return j.uses(d) && !slices.Contains(j.hidden, d) }

// allows reports whether the rule of a job allows a device. If a privileged user named the devices of the job, the rule does not limit
// them.
func (j *job) allows(d *device) bool {
	return j.Rule.Devices.Has(d.Device) || j.devices != nil && j.Asked.MayPass
}

// newProcess returns a session that stands for a future process of the job, to compute its limits.
func (j *job) newProcess() *session {
	return &session{Client: rules.Client{Job: &j.Job}, process: &j.request.Process, job: j}
}

// limitOwner returns the key of a job in the table of live limits. A job without a runner has the key of its process.
func (j *job) limitOwner() rules.Owner {
	if j.run {
		return rules.Owner{Kind: rules.OfJob, ID: uint64(j.id)}
	}
	return processOwner(&j.request.Process)
}

// limitOwner returns the key of a session's process in the table of live limits.
func (s *session) limitOwner() rules.Owner { return processOwner(s.process) }

// processOwner returns the key of a process in the table of live limits.
func processOwner(p *rules.Process) rules.Owner {
	return rules.Owner{Kind: rules.OfProcess, ID: uint64(p.PID), Start: p.StartTicks}
}

// timeout returns how long requests of a job may wait; negative: without a limit.
func (j *job) timeout() time.Duration {
	switch {
	case j.pending && j.request.OpenWithin != 0:
		return max(j.request.OpenWithin, rules.NoTimeout)
	case j.request.Forever:
		return rules.NoTimeout
	case j.request.Timeout > 0:
		return j.request.Timeout
	}
	return j.Rule.WaitTimeout
}

// streamReserve returns the bytes that each stream of the session is charged with.
func (s *session) streamReserve() accounting.Bytes {
	if s.reserve != nil {
		return *s.reserve
	}
	return s.job.Rule.StreamReserve
}

// waitsToStart reports whether the session waits for its reservation. It has no lease until it has started.
func (s *session) waitsToStart() bool {
	return s.pending && slices.ContainsFunc(s.job.tickets, func(t *ticket) bool { return t.session == s && t.kind == wantsSession })
}

// startedSession returns a session that may have leases: its process lives, and it does not wait to start. nil: there is none.
func (a *Arbiter) startedSession(id SessionID) *session {
	if s := a.sessions[id]; s != nil && s.alive() && !s.waitsToStart() {
		return s
	}
	return nil
}

// waiting returns how many threads of a process wait. Each request of an unknown thread counts as one thread.
func (s *session) waiting() int { return len(s.waits) + max(0, s.waits[0]-1) }

// blocked reports whether all threads of a process wait that ever made an intercepted call, as far as the client reports them.
func (s *session) blocked() bool { return s.threads > 0 && s.waiting() >= s.threads }

// goesOn reports whether a process lives and has a thread that may not be waiting.
func (s *session) goesOn() bool { return s.alive() && !s.blocked() }

// blocked reports whether no process of a job has such a thread.
func (j *job) blocked() bool {
	return len(j.sessions) > 0 && !slices.ContainsFunc(j.sessions, (*session).goesOn)
}

// Jobs returns the IDs of all jobs, the oldest first.
func (a *Arbiter) Jobs() []JobID { return slices.Sorted(maps.Keys(a.jobs)) }
