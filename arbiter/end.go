package arbiter

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/reading"
	"github.com/gpuarb/gpuarb/arbiter/threads"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file ends leases, sessions and jobs: what they held goes back, and a budget goes with the last that is below it. sessions.go, jobs.go,
// devices.go and observe.go say when.

// Tally returns what became of a job so far; false where there is none.
func (a *Arbiter) Tally(now time.Time, id JobID) (Tally, bool) {
	j := a.jobs[id]
	if j == nil {
		return Tally{}, false
	}
	sum := Tally{Waits: j.tally.waits, Waited: j.tally.waited, Refused: j.tally.refused, Beside: slices.Clone(j.tally.besides), More: j.tally.more, Unknown: len(j.tally.unknown)}
	if !j.tally.since.IsZero() {
		sum.Since = max(now.Sub(j.tally.since), time.Millisecond)
	}
	for _, s := range j.sessions {
		for _, l := range s.leases {
			a.readUsage(l)
		}
	}
	for _, p := range j.used {
		if p.max > 0 {
			sum.Devices = append(sum.Devices, TallyDevice{p.device.Index, p.max, j.limits(p.device).Max, !p.device.IsGPU()})
		}
	}
	return sum, true
}

// jobOver records the event of a job's end, with what the job used. There is none for a job that never began.
func (a *Arbiter) jobOver(now time.Time, j *job) {
	if !j.run || j.ended || j.pending {
		return
	}
	account, _ := a.Tally(now, j.id)
	e := Event{Time: now, Kind: EventEnded, What: AsksJob, Device: -1, WaitedMs: account.Waited.Milliseconds(), program: j.name(), account: &account}
	e.about(&j.request.Process)
	e.in(j)
	if len(account.Devices) == 1 {
		e.Device, e.Bytes = account.Devices[0].Device, account.Devices[0].Peak
	}
	a.event(e)
}

// releaseKept takes back the slots, claims and devices that a job keeps. Where its processes
// have objects it stays a holder for them.
func (a *Arbiter) releaseKept(now time.Time, j *job) {
	for _, d := range a.devices {
		h := d.holder(owner{Job: j})
		if h == nil || !h.kept {
			continue
		}
		h.kept = false
		a.changed()
		delete(d.permits[permit.Claim], h.owner)
		delete(d.permits[permit.Sole], h.owner)
		if !a.inUse(h) {
			a.dropSlot(now, h)
			continue
		}
		for _, s := range j.sessions {
			for _, l := range s.leases {
				a.setNotify(l)
			}
		}
	}
}

// dropJob takes a job without sessions out, and the shared budgets that it was the last of.
func (a *Arbiter) dropJob(j *job) {
	delete(a.jobs, j.id)
	a.uncountJob(j)
	a.dropBudget(j.budget)
	for sh := range j.shares {
		a.dropShared(sh)
	}
}

// endJob forgets a job whose runner is gone and whose last process is dead. What it has
// reserved, its slots and its claim are free then; what still drains it holds to the end.
func (a *Arbiter) endJob(now time.Time, j *job) {
	if !j.closed || slices.ContainsFunc(j.sessions, (*session).alive) {
		return
	}
	a.jobOver(now, j)
	j.ended = true
	a.releaseKept(now, j)
	_, _ = a.setLimits(a.jobChanges(nil, j), false)
	if len(j.sessions) == 0 {
		a.dropJob(j)
	}
}

// dropSession takes an ended session without leases out, and its job if that ends with it.
func (a *Arbiter) dropSession(now time.Time, s *session) {
	delete(a.sessions, s.id)
	a.draining = slices.DeleteFunc(a.draining, func(x *session) bool { return x == s })
	s.job.sessions = slices.DeleteFunc(s.job.sessions, func(x *session) bool { return x == s })
	a.dropBudget(s.budget)
	for _, c := range s.cgroups {
		a.dropShared(c)
	}
	a.endJob(now, s.job)
}

// closeLease takes a lease of an ended session out, with all that it holds, and the session with its last one.
func (a *Arbiter) closeLease(now time.Time, l *lease) {
	s, d := l.session, l.device
	d.peak.update(l.lastUsed, 0, 0)
	s.job.useOf(d).update(l.lastUsed, 0, 0)
	l.lastUsed = 0
	delete(d.leasesAway, l)
	l.Close()
	delete(a.leases, l.id)
	s.leases = slices.DeleteFunc(s.leases, func(x *lease) bool { return x == l })
	pid := s.process.PID
	d.byPID[pid] = slices.DeleteFunc(d.byPID[pid], func(x *lease) bool { return x == l })
	if len(d.byPID[pid]) == 0 {
		delete(d.byPID, pid)
	}
	a.recap(now, d)
	if len(s.leases) == 0 {
		a.dropSession(now, s)
	}
}

// closeDrained closes a drained lease: its bytes are free for others.
func (a *Arbiter) closeDrained(now time.Time, l *lease) {
	a.stats.ReclaimedLeases++
	bytes := l.Granted()
	a.leaseEvent(now, l, Event{Kind: EventReclaimed, Bytes: bytes, Text: fmt.Sprintf(wording.Reclaimed, l.session.name(), bytes.Human(), l.device)})
	a.closeLease(now, l)
}

// dropSlotsOf takes back the slots of a session that has ended.
func (a *Arbiter) dropSlotsOf(now time.Time, s *session) {
	for _, l := range s.leases {
		for thread := range l.makers.All() {
			if h := l.device.holder(l.owner(thread)); h != nil {
				a.dropSlot(now, h)
			}
		}
		if h := l.device.holder(owner{Job: s.job, Process: s}); h != nil {
			a.dropSlot(now, h)
		}
		if h := l.slot; h != nil {
			l.slot = nil
			if !a.inUse(h) {
				a.dropSlot(now, h)
			}
		}
		a.uncountThreads(l, l.makers.Len())
		l.makers = threads.Set{}
	}
}

// clearLost takes from a lease all that it held on a device that is gone. Its word is closed and
// empty: whoever allocates asks, and is told.
func (a *Arbiter) clearLost(l *lease) {
	a.recallIdle(l, a.idle(l))
	l.closed, l.notify = true, false
	a.updateFlags(l)
	a.revokeStreams(l)
	l.lost = true
	l.Clear()
	l.awayShown = false
	delete(l.device.leasesAway, l)
	l.contexts = 0
	l.extra = reading.Extra{}
	l.word.Lost()
	a.readUsage(l)
}

// loseLease has a lease hold nothing whose device was lost.
func (a *Arbiter) loseLease(now time.Time, l *lease) {
	if a.leases[l.id] != l {
		return
	}
	if a.clearLost(l); !l.session.alive() { // nothing to wait for
		a.closeLease(now, l)
	}
}
