package arbiter

import (
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// This file has read-only questions about a ticket: its candidate devices, the limits that refused it when it was last evaluated
// (evaluate.go), and the budgets that it is charged to. queue.go adds tickets to the queue, and decision.go ends them.

// only returns the single candidate of a lease's ticket.
func (t *ticket) only() *candidate { return &t.candidates[0] }

// shares yields the shared budgets above the session of a ticket, or above its job, the narrower ones first.
func (t *ticket) shares(yield func(*shared) bool) {
	if t.session != nil {
		t.session.shares(yield)
		return
	}
	t.job.shares(yield)
}

// reservesIn yields the jobs of cgroups around the job of a cgroup that is being opened, or around a job that returns, the inner ones first.
// The reservation of the job is part of their budgets. It yields nothing for other tickets.
func (t *ticket) reservesIn(yield func(*job) bool) {
	if t.kind != wantsReturn && (t.kind != wantsJob || t.job.request.Cgroup == "") {
		return
	}
	for in := t.job.around; in != nil && yield(in); in = in.around {
	}
}

// opens reports whether a ticket opens a job or a session, which is dropped if the ticket is refused.
func (t *ticket) opens() bool { return t.kind == wantsJob || t.kind == wantsSession }

// on reports whether a device is among the candidates of a ticket.
func (t *ticket) on(d *device) bool {
	return slices.ContainsFunc(t.candidates, func(s candidate) bool { return s.device == d })
}

// lacks reports whether a limit for which sort returns true refuses the ticket on this device.
func (s *candidate) lacks(sort func(refusingLimit) bool) bool {
	return slices.ContainsFunc(s.refusedBy, sort)
}

// lacks reports whether a limit for which sort returns true refuses the ticket on one of its candidate devices.
func (t *ticket) lacks(sort func(refusingLimit) bool) bool {
	return slices.ContainsFunc(t.candidates, func(s candidate) bool { return s.lacks(sort) })
}

// hasNoRoom reports whether the limit has no room.
func (f refusingLimit) hasNoRoom() bool { return f.noRoom }

// ofBytes reports whether the limit bounds bytes.
func (f refusingLimit) ofBytes() bool { return f.kind == limitsBytes }

// ofPermits reports whether the limit bounds permits, or is a program's own slot limit.
func (f refusingLimit) ofPermits() bool { return f.kind != limitsBytes }

// fitsButBlocked reports whether a ticket fits and only earlier requests block it. If one device is enough for it, it must fit on one device.
func (t *ticket) fitsButBlocked() bool {
	if !t.any {
		return !t.lacks(refusingLimit.hasNoRoom)
	}
	return slices.ContainsFunc(t.candidates, func(s candidate) bool { return !s.lacks(refusingLimit.hasNoRoom) })
}

// narrowestLimit returns the limit at which a ticket waits, for notices: the narrowest that refuses it.
func (t *ticket) narrowestLimit() *limit {
	for i := range t.candidates {
		if s := &t.candidates[i]; len(s.refusedBy) > 0 && (!s.device.lost || i == len(t.candidates)-1) {
			return s.refusedBy[0].limit
		}
	}
	return &t.candidates[0].device.bytes
}

// process returns the process that made the request.
func (t *ticket) process() *rules.Process {
	if t.session != nil {
		return t.session.process
	}
	return &t.job.request.Process
}

// AbsentFor is how long the ticket of an absent client is kept. A client that lost its daemon tries to connect once a second.
const AbsentFor = 3 * time.Second

// absent reports whether the client of a waiting request has not asked again yet.
func (t *ticket) absent() bool { return !t.absentUntil.IsZero() }

// expiry returns when a waiting request times out or, if its client is absent, loses its place. The zero time means never.
func (t *ticket) expiry() time.Time {
	if t.absent() {
		return t.absentUntil
	}
	return t.deadline
}

// memory returns the amounts that n bytes of a ticket's memory add to the sums. Managed memory adds nothing to the sum of the device.
func (t *ticket) memory(n accounting.Bytes) accounting.Amounts {
	if t.managed {
		return accounting.Managed(n)
	}
	return accounting.OnDevice(n)
}

// chargedToBudgets reports whether a request is charged to the budgets above its lease. Contexts and holds are charged to the device alone,
// unless the job is charged with overhead (chargesOverhead).
func (a *Arbiter) chargedToBudgets(t *ticket) bool {
	return t.kind != WantsContexts && t.kind != WantsHolds || a.chargesOverhead(t.job)
}

// takes returns the amounts that a ticket adds to its lease.
func (t *ticket) takes(a *Arbiter) (all accounting.Amounts) {
	if a.chargedToBudgets(t) {
		all = t.memory(t.bytes)
	}
	if t.kind == WantsStreams {
		all[accounting.Streams] = accounting.Bytes(t.count)
	}
	return all
}

// chargedNode returns the ledger node that a request is charged to: its lease, or the node of its device.
func (a *Arbiter) chargedNode(t *ticket) *accounting.Lease {
	if a.chargedToBudgets(t) {
		return &t.lease.Lease
	}
	return &t.lease.device.direct
}

// reasonOf returns the reason of a refusal, which depends on the owner of the limit that refused.
func reasonOf(r *accounting.Refusal) Reason {
	switch {
	case r.Budget == nil:
		return ReasonDeviceFull
	case sharedOf(r.Budget) != nil:
		return ReasonSharedFull
	}
	return ReasonOverBudget
}

// shortOf returns the reason for the refusal of a request. If several limits refuse it, the reason is that of the narrowest one at which a
// recall would not have made enough room.
func (t *ticket) shortOf() Reason {
	if t.short != nil {
		return reasonOf(t.short)
	}
	return t.evaluation.reason
}

// waitsForBytes reports whether requests of a ticket's process wait for memory, by on_full of the process, of its job, or of the rule.
func (t *ticket) waitsForBytes() bool {
	switch {
	case t.session != nil && t.session.onFull != "":
		return t.session.onFull == rules.OnFullWait
	case t.job.request.Wait:
		return true
	}
	return t.job.Rule.OnFull == rules.OnFullWait
}

// waitsForBytes reports whether a ticket waits for bytes on this device: the narrowest limit that refuses it there bounds bytes. The queue
// shows that limit as the reason.
func (s *candidate) waitsForBytes() bool { return len(s.refusedBy) > 0 && s.refusedBy[0].ofBytes() }

// sharesBudget reports whether t and u are charged to the same job, or inside the same job, or to the same shared budget. If so, serving t
// leaves less room for u there: u may then have to be refused, or wait at a narrower limit than before.
func (t *ticket) sharesBudget(u *ticket) bool {
	if t.job.outermost() == u.job.outermost() {
		return true
	}
	for sh := range t.shares {
		if among(u.shares, sh) {
			return true
		}
	}
	return false
}

// counted returns o with the number of streams or contexts of the lease filled in.
func (l *lease) counted(what RequestKind, o Result) Result {
	switch what {
	case WantsStreams:
		o.Current, o.Max = l.Streams(), l.StreamsMax()
	case WantsContexts, WantsHolds:
		o.Current = l.contexts
	}
	return o
}

// counted returns r with Current and Max filled in.
func (t *ticket) counted(r Result) Result {
	if t.lease == nil {
		return r
	}
	return t.lease.counted(t.kind, r)
}

// result returns the result of a request at the end of the call that made it: the decision, or the ticket with which it waits.
func (t *ticket) result() Result {
	if t.done {
		return t.answer
	}
	return t.counted(Result{Waiting: t.id})
}

// waits reports whether the ticket has to wait.
func (v evaluation) waits() bool { return !v.final && v.fits == nil && v.reason != ReasonNone }

// original returns the live ticket that t is a copy of; if t is live, t itself.
func (t *ticket) original() *ticket {
	if t.live != nil {
		return t.live
	}
	return t
}
