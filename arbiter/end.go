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

// This file ends leases, sessions and jobs, releases what they held, and closes budgets that become empty. sessions.go, jobs.go, devices.go
// and observe.go call it.

// Tally returns the counts of a job so far, with those of the jobs inside it. It returns false for an unknown job.
func (a *Arbiter) Tally(now time.Time, id JobID) (Tally, bool) {
	j := a.jobs[id]
	if j == nil {
		return Tally{}, false
	}
	t := j.counted()
	all := j.wholeCounts()
	sum := Tally{Waits: all.waits, Waited: all.waited, Refused: all.refused, LastRefused: t.lastRefused, Unmanaged: slices.Clone(t.unmanaged), MoreUnmanaged: t.moreUnmanaged, Unknown: len(t.unknown)}
	if !t.since.IsZero() {
		sum.Since = max(now.Sub(t.since), time.Millisecond)
	}
	for s := range j.clients {
		for _, l := range s.leases {
			a.readUsage(l)
		}
	}
	for _, p := range j.used {
		if w := &p.whole; w.used.max > 0 {
			contexts, kept := w.overhead.max, w.overhead.max == 0
			if kept {
				contexts = w.assumed.max
			}
			sum.Devices = append(sum.Devices, TallyDevice{Device: p.device.Index, Peak: w.used.max, Max: j.limits(p.device).Max, Contexts: contexts, Kept: kept, processor: !p.device.IsGPU()})
		}
	}
	return sum, true
}

// wholeCounts returns the counts of the requests of a job and of the jobs inside it, those that have ended included.
func (j *job) wholeCounts() requestCounts {
	t := j.counted()
	all := requestCounts{t.waits, t.refused, t.waited}
	all.add(t.inside)
	for _, in := range j.inside {
		all.add(in.wholeCounts())
	}
	return all
}

// jobOver records the event of a job's end, with the job's usage. A job that never started has no such event.
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

// releaseKept takes back the slots, claims and sole uses that a job keeps. If its processes have objects on a device, the job stays a
// holder there.
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

// dropJob removes a job without sessions, and the shared budgets below which it was the last.
func (a *Arbiter) dropJob(now time.Time, j *job) {
	if in := j.around; in != nil && j.run {
		in.counts().inside.add(j.wholeCounts())
	}
	a.leaveInside(now, j)
	delete(a.jobs, j.id)
	a.uncountJob(j)
	a.dropBudget(j.budget)
	a.dropUnmanagedOf(now, j)
	for sh := range j.shares {
		a.dropShared(sh)
	}
	a.updateHiddenOf(j.shared)
}

// endJob ends a job whose runner and processes have ended. It releases the job's reservation, slots and claim. Draining leases keep what
// they hold.
func (a *Arbiter) endJob(now time.Time, j *job) {
	if !j.closed || j.outlives() || slices.ContainsFunc(j.sessions, (*session).alive) {
		return
	}
	a.forgetSuspension(now, j)
	a.jobOver(now, j)
	a.recordEnd(now, j, "")
	j.ended = true
	a.updateHiddenOf(j.shared)
	a.releaseKept(now, j)
	_, _ = a.setLimits(a.jobChanges(nil, j), false)
	if len(j.sessions) == 0 {
		a.dropJob(now, j)
	}
}

// dropSession removes an ended session without leases, and ends its job if that was the last session.
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

// closeLease removes a lease of an ended session, with everything that it holds. It removes the session with its last lease.
func (a *Arbiter) closeLease(now time.Time, l *lease) {
	s, d := l.session, l.device
	d.peak.update(l.lastUsed, 0, 0)
	l.updateUse(0, 0)
	l.setOverhead(0, 0)
	a.countUsage(l)
	delete(d.leasesAway, l)
	l.Close()
	delete(a.leases, l.id)
	s.leases = slices.DeleteFunc(s.leases, func(x *lease) bool { return x == l })
	pid := s.process.PID
	d.byPID[pid] = slices.DeleteFunc(d.byPID[pid], func(x *lease) bool { return x == l })
	if len(d.byPID[pid]) == 0 {
		delete(d.byPID, pid)
	}
	a.updateCapacity(now, d)
	if len(s.leases) == 0 {
		a.dropSession(now, s)
	}
}

// closeDrained closes a lease whose memory the device has freed, so that other leases can get the bytes.
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

// clearLost releases everything that a lease held on a lost device. It closes the credit word, so that the client asks for its next
// allocation and gets the reason.
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

// loseLease clears a lease whose device was lost, and closes it if its process has ended.
func (a *Arbiter) loseLease(now time.Time, l *lease) {
	if a.leases[l.id] != l {
		return
	}
	if a.clearLost(l); !l.session.alive() { // no memory is left to wait for
		a.closeLease(now, l)
	}
}
