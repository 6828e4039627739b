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

// This file says what belongs to whom: the sessions and leases of a job, the budgets that it shares with others, the devices that it may use, and
// whether its processes live, begin, wait or go on. It changes nothing.

// shares yields the budgets that all of a job shares with others, the narrower one first.
func (j *job) shares(yield func(*shared) bool) {
	if j.cap != nil && !yield(j.cap) || j.shared == nil {
		return
	}
	yield(j.shared)
}

// shares yields the budgets that a process shares with others, the narrower ones first.
func (s *session) shares(yield func(*shared) bool) {
	for _, c := range s.cgroups {
		if !yield(c) {
			return
		}
	}
	s.job.shares(yield)
}

// among reports whether a budget is one of those that somebody shares.
func among(shares iter.Seq[*shared], of *shared) bool {
	for sh := range shares {
		if sh == of {
			return true
		}
	}
	return false
}

// sharedOf is the budget that jobs share of which b is the part in the ledger; nil: it is not one of those, or none.
func sharedOf(b *accounting.Budget) *shared {
	if b == nil {
		return nil
	}
	s, _ := b.Owner.(*shared)
	return s
}

// budgetOf is the part in the ledger of a budget that jobs share; nil: of none.
func budgetOf(s *shared) *accounting.Budget {
	if s == nil {
		return nil
	}
	return s.budget
}

// ofCgroup reports whether it is the budget of all programs in a cgroup, which counts its processes and not their jobs.
func (s *shared) ofCgroup() bool { return s.limit != nil && s.limit.Of.Kind == rules.OfCgroup }

// describe is the budget in a sentence: "user bob's budget".
func (s *shared) describe() string {
	if s.key.scope == rules.ScopeRule {
		return fmt.Sprintf(wording.SharedBudget, s.who)
	}
	return fmt.Sprintf(wording.Budget, s.who)
}

// alive reports that the session's process is not known to be dead.
func (s *session) alive() bool { return s.ended.IsZero() }

// leaseOn is the session's lease on a device; nil: it has none.
func (s *session) leaseOn(d *device) *lease {
	for _, l := range s.leases {
		if l.device == d {
			return l
		}
	}
	return nil
}

// leasesOn yields the leases that a job has on a device.
func (j *job) leasesOn(d *device) iter.Seq[*lease] {
	return func(yield func(*lease) bool) {
		for _, s := range j.sessions {
			if l := s.leaseOn(d); l != nil && !yield(l) {
				return
			}
		}
	}
}

// owners yields the arbiter's leases for leases of the ledger.
func owners(seq iter.Seq[accounting.Holder]) iter.Seq[*lease] {
	return func(yield func(*lease) bool) {
		for h := range seq {
			if !yield(h.(*lease)) {
				return
			}
		}
	}
}

// leasesOn yields a device's leases.
func (a *Arbiter) leasesOn(d *device) iter.Seq[*lease] {
	return owners(a.ledger.Leases(d.Index))
}

// leasesBelow yields the leases on a device below a budget (nil: all of them).
func (a *Arbiter) leasesBelow(b *accounting.Budget, device int) iter.Seq[*lease] {
	if b == nil {
		return owners(a.ledger.Leases(device))
	}
	return owners(b.Leases(device))
}

// assigned reports whether a device is one of the job's from its start: those that it named or was given, else every GPU.
func (j *job) assigned(d *device) bool {
	if j.devices == nil {
		return d.IsGPU()
	}
	return slices.Contains(j.devices, d)
}

// uses reports whether a job may use a device. What a job is given are GPUs: the processor is there for each, within its limits,
// and no variable hides it from its programs.
func (j *job) uses(d *device) bool { return !d.IsGPU() || j.assigned(d) }

// newProcess stands for a process of the job that begins, for the limits that it has then.
func (j *job) newProcess() *session { return &session{Client: rules.Client{Job: &j.Job}, job: j} }

// limitOwner returns the key of a job in the table of live limits. The job of a bare process has the limits of the process.
func (j *job) limitOwner() rules.Owner {
	if j.run {
		return rules.Owner{Kind: rules.OfJob, ID: uint64(j.id)}
	}
	return processOwner(&j.request.Process)
}

// limitOwner returns the key of a session's process in the table of live limits.
func (s *session) limitOwner() rules.Owner { return processOwner(&s.process) }

func processOwner(p *rules.Process) rules.Owner {
	return rules.Owner{Kind: rules.OfProcess, ID: uint64(p.PID), Start: p.StartTicks}
}

// timeout returns how long a job's requests wait; negative: without end.
func (j *job) timeout() time.Duration {
	switch {
	case j.request.Forever:
		return rules.NoTimeout
	case j.request.Timeout > 0:
		return j.request.Timeout
	}
	return j.Rule.WaitTimeout
}

// streamReserve is what each of the session's streams is charged.
func (s *session) streamReserve() accounting.Bytes {
	if s.reserve != nil {
		return *s.reserve
	}
	return s.job.Rule.StreamReserve
}

// waitsToStart reports whether the session waits for what it reserves at its start. While it waits it has no lease.
func (s *session) waitsToStart() bool {
	return s.pending && slices.ContainsFunc(s.job.tickets, func(t *ticket) bool { return t.session == s && t.kind == wantsSession })
}

// startedSession returns a session that may have leases: its process lives, and it does not wait for its start. nil: there is none.
func (a *Arbiter) startedSession(id SessionID) *session {
	if s := a.sessions[id]; s != nil && s.alive() && !s.waitsToStart() {
		return s
	}
	return nil
}

// waiting returns how many threads of a process wait. Requests of an unknown thread are of one thread each.
func (s *session) waiting() int { return len(s.waits) + max(0, s.waits[0]-1) }

// blocked reports whether every thread of a process waits that ever made an intercepted call, as far as is known.
func (s *session) blocked() bool { return s.threads > 0 && s.waiting() >= s.threads }

// goesOn reports whether a process lives, and has a thread that may not wait.
func (s *session) goesOn() bool { return s.alive() && !s.blocked() }

// blocked reports whether every such thread of a job waits.
func (j *job) blocked() bool {
	return len(j.sessions) > 0 && !slices.ContainsFunc(j.sessions, (*session).goesOn)
}

// Jobs returns the jobs that are there, the oldest first.
func (a *Arbiter) Jobs() []JobID { return slices.Sorted(maps.Keys(a.jobs)) }
