package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/permit"
)

// This file grants requests that were evaluated to fit (evaluate.go), after recalling idle credit if needed. decide.go, cycle.go and
// deadlock.go call it.

// admit serves a ticket that fits, and returns its evaluation after that. If clients of its own job have since allocated the idle credit that
// was to make room, the ticket is evaluated again: it then waits at another limit, or is refused if waiting cannot help.
func (a *Arbiter) admit(now time.Time, t *ticket, v evaluation) evaluation {
	if a.serve(now, t, v.fits) {
		return v
	}
	if v = a.evaluate(t); !v.waits() || reasonOf(t.short) == ReasonOverBudget {
		v = evaluation{final: true, reason: reasonOf(t.short), refusal: t.short}
		t.evaluation = v
	}
	return v
}

// serve grants a ticket that fits. It returns false if the ticket does not fit any more, because clients of its own job have allocated the
// idle credit that was to make room.
func (a *Arbiter) serve(now time.Time, t *ticket, at *candidate) bool {
	switch t.kind {
	case wantsJob:
		a.serveJob(now, t, at)
	case wantsSession:
		a.serveSession(now, t)
	case wantsReturn:
		a.serveReturn(now, t)
	default:
		return a.serveLease(now, t)
	}
	return true
}

// serveLease grants a request of a lease, and takes a slot if the lease needs one.
func (a *Arbiter) serveLease(now time.Time, t *ticket) bool {
	l := t.lease
	if !a.fit(t) {
		return false
	}
	a.takeSlot(now, l, t.thread)
	a.finish(now, t, Result{Granted: true, Receipt: a.apply(now, t)})
	a.setNotify(l)
	return true
}

// apply adds the amounts of a ticket to the sums of its lease. It returns the receipt, with which the grant can be taken back.
func (a *Arbiter) apply(now time.Time, t *ticket) Receipt {
	l, thread := t.lease, a.trackThread(t.lease, t.thread)
	got := Receipt{Lease: l.id, What: t.kind, Count: t.count, Thread: t.thread}
	switch t.kind {
	case WantsBytes:
		l.makers.MakeBytes(thread)
		if !a.grant(l, t.memory(t.bytes)) {
			panic("arbiter: what fits was refused") // it was checked under the same lock
		}
		got.Bytes = t.bytes
		delete(l.bursts, t.thread)
	case WantsStreams:
		l.Reserve(accounting.Amounts{accounting.Streams: accounting.Bytes(t.count)})
		l.makers.Make(Maker{Thread: thread, Streams: t.count})
		a.updateCost(now, l, func() {})
	default:
		cost := t.bytes
		if t.kind == WantsContexts {
			cost = max(cost, l.newContexts(t.count, l.device.contextRoom())).Plus(l.offered())
			l.extra.ReuseFreed(l.device.contextCost().Times(uint64(t.count)))
		}
		a.countContexts(l, t.thread, t.count, t.kind)
		l.extra.ContextsMade(now)
		a.updateCost(now, l, func() { l.extra.Expect(cost) })
	}
	return got
}

// grant adds memory to the sums of a lease and to its credit word, if the memory fits. If it returns false nothing has changed.
func (a *Arbiter) grant(l *lease, all accounting.Amounts) bool {
	n, before := all[accounting.Memory], l.Granted()
	if l.Reserve(all) != nil {
		return false
	}
	l.word.Grant(before, n)
	if all[accounting.Present] == 0 { // managed memory
		l.extra.GrantManaged(n)
		a.publishAway(l)
	}
	a.readUsage(l)
	l.session.job.useOf(l.device).meter.Exact()
	if !l.contended() {
		a.surplus(l)
	}
	l.admitted++
	l.device.admitted++
	a.stats.Admitted++
	return true
}

// fit reports whether the budgets above a lease have room for a request. If the lease's own process or job budget has too little, it first
// recalls idle credit of other leases below that budget.
func (a *Arbiter) fit(t *ticket) bool {
	if !a.chargedToBudgets(t) {
		return true
	}
	if t.lease.Check(t.memory(t.bytes)) == nil {
		return true
	}
	a.countLimit(t)
	t.short = a.makeRoom(t)
	return t.short == nil
}

// recallHelps recalls idle credit on the candidate devices on which only a lack of bytes refuses a ticket, if that makes enough room there.
// If one device is enough for the ticket, it stops at the first such device. It returns true if it recalled credit. Credit that would not
// make enough room stays with its leases.
func (a *Arbiter) recallHelps(t *ticket) (helped bool) {
	for i := range t.candidates {
		s := &t.candidates[i]
		switch {
		case len(s.refusedBy) == 0 && t.any:
			return false // the ticket already fits on this device
		case len(s.refusedBy) == 0:
		case !s.lacks(func(f refusingLimit) bool { return !f.noRoom || f.ofPermits() }) && a.recallHelpsOn(t, s.device):
			if helped = true; t.any {
				return true
			}
		case !t.any:
			return helped
		}
	}
	return helped
}

// recallHelpsOn recalls idle credit on one device, and returns true if the ticket then has room there. If all idle credit would not make
// enough room, it recalls none.
func (a *Arbiter) recallHelpsOn(t *ticket, d *device) bool {
	switch {
	case t.lease == nil:
		least, budget := t.reserves(d)
		return a.recallFor(nil, func() *accounting.Refusal { return a.checkMin(budget, d, least) })
	case a.chargedToBudgets(t):
		t.short = a.makeRoom(t)
		return t.short == nil
	}
	return a.recallFor(nil, func() *accounting.Refusal { return a.chargedNode(t).Check(accounting.OnDevice(t.bytes)) })
}

// serveJob opens a job that fits, with its reservations and permits.
func (a *Arbiter) serveJob(now time.Time, t *ticket, at *candidate) {
	j := t.job
	var keeps []*device // devices where the job keeps a slot that the evaluation checked; a device whose slots.max was set later is not among them
	for i := range t.candidates {
		if s := &t.candidates[i]; s.asks[permit.Slot] && (!t.any || s == at) && j.keeps(s.device) {
			keeps = append(keeps, s.device)
		}
	}
	if t.any {
		j.devices = []*device{at.device}
	}
	j.pending = false
	if j.returnsOnStart() {
		a.returnOnUse(now, t, at)
	}
	a.begin(now, j, keeps)
	a.finish(now, t, Result{Granted: true, Job: new(a.jobInfo(j))})
}

// jobInfo describes a job that is open.
func (a *Arbiter) jobInfo(j *job) JobInfo {
	info := JobInfo{ID: j.id, Keeps: []int{}}
	var largest accounting.Bytes
	for _, d := range a.devices {
		if !d.lost && d.Total > largest && j.assigned(d) {
			largest = d.Total
			info.Budget = min(j.limits(d).Max, j.newProcess().limits(d).Max, d.grantable())
			for sh := range j.shares {
				info.Budget = min(info.Budget, sh.budget.Limits(d.Index).Max)
			}
			for in := j.around; in != nil; in = in.around {
				info.Budget = min(info.Budget, in.limits(d).Max)
			}
		}
		if h := d.permits[permit.Slot][owner{Job: j}]; h != nil && h.kept {
			info.Keeps = append(info.Keeps, d.Index)
		}
	}
	for _, d := range j.devices {
		info.Devices = append(info.Devices, d.Index)
	}
	return info
}

// serveSession opens a session that fits, with its reservation.
func (a *Arbiter) serveSession(now time.Time, t *ticket) {
	s, j := t.session, t.job
	t.bytes = a.wantsBytes(t) // computed before the reservation is made, for the event
	if j.pending {
		j.opened = now
		a.stats.TotalJobs++
	}
	if j.returnsOnStart() {
		a.returnOnUse(now, t, nil)
	}
	a.reserve(s)
	a.finish(now, t, Result{Granted: true})
}

// reserve makes the reservation of a session that fits. If the job has no reservation yet, it makes that of the job first.
func (a *Arbiter) reserve(s *session) {
	s.pending = false
	if s.job.pending {
		s.job.pending = false
		a.reserveJob(s.job)
	}
	_, _ = a.setLimits(a.sessionChanges(nil, s), false)
}

// reserveJob makes the reservations of a job that fits.
func (a *Arbiter) reserveJob(j *job) {
	_, _ = a.setLimits(a.jobChanges(nil, j), false)
	a.changed() // waiting requests may have less room now
}

// begin makes the reservations of a job, and makes the job a holder of the devices in keeps until the job ends.
func (a *Arbiter) begin(now time.Time, j *job, keeps []*device) {
	a.reserveJob(j)
	j.opened = now
	a.stats.TotalJobs++
	for _, d := range keeps {
		a.grantJobPermits(now, j, d)
	}
}
