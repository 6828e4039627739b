package arbiter

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file takes up again what a daemon before this one had: jobs, sessions and leases. The daemon calls it at its start, and when clients resume that
// no record confirms. recount.go compares a client's own sums.

// NextJob is an ID that no job has had. It is for RestoreJob of a job of which the ID is
// not known any more.
func (a *Arbiter) NextJob() JobID { return a.lastJob + 1 }

// RestoreJob takes a job up again after a restart of the daemon, under the ID
// that it had; before any session of it, and before new jobs are opened. Its
// reservations hold whether there is room or not. ErrRange for ID 0, ErrExists for
// one that is there. When all sessions are restored, CloseJob is for those whose
// runner is gone.
func (a *Arbiter) RestoreJob(now time.Time, r RestoredJob) error {
	if r.ID == 0 {
		return fmt.Errorf("job 0: %w", rules.ErrRange)
	}
	if a.jobs[r.ID] != nil {
		return fmt.Errorf("job %d: %w", r.ID, ErrExists)
	}
	defer a.cycle(now)
	j := &job{id: r.ID, request: r.Request, Job: rules.Job{Rule: a.policy.For(r.Request.Process)}, run: true, released: r.Released, commandEnded: r.CommandEnded, survivor: r.StillRuns}
	for _, index := range r.Devices {
		if d := a.device(index); d != nil {
			j.devices = append(j.devices, d)
		}
	}
	if j.devices == nil && len(r.Devices) > 0 {
		j.devices = []*device{} // what it had is not there any more
	}
	j.tally.since = now
	a.newJob(now, j)
	var keeps []*device
	for _, d := range a.devices {
		if j.kept(d, r.Keeps) && a.keepsAgain(j, d) {
			keeps = append(keeps, d)
		}
	}
	since := r.Since
	if since.IsZero() {
		since = now
	}
	a.begin(since, j, keeps)
	return nil
}

// kept reports whether a job kept a slot of a device before the restart, by the devices that were recorded; nil: none were. Limits that were
// changed since its start neither give it a slot nor take one from it.
func (j *job) kept(d *device, recorded []int) bool {
	if recorded == nil {
		return j.keeps(d)
	}
	return !j.released && !d.lost && slices.Contains(recorded, d.Index)
}

// keepsAgain reports whether a restored job may keep a slot of a device. It may not if a job that was restored before it has the device
// to itself. Such a pair exists because one of the two began while the device was lost, or while slots had no limit, and did not have the slot before the
// restart. For the same reason a job that is to have the device to itself takes the slots of the jobs that were restored before it.
func (a *Arbiter) keepsAgain(j *job, d *device) bool {
	if len(d.permits[permit.Sole]) > 0 {
		return false
	}
	if j.request.Exclusive {
		for _, h := range slices.Collect(maps.Values(d.permits[permit.Slot])) {
			a.revokePermits(h)
		}
	}
	return true
}

// RestoreSession takes a session up again after a restart of the daemon, in its job (ErrNoJob when
// that is not there) or as a job of its own. It never waits, since its process holds memory already. Its reservation is made whether
// there is room or not; with r.Unreserved only by a later call of [Arbiter.Reserve].
func (a *Arbiter) RestoreSession(now time.Time, r SessionRequest) (SessionID, error) {
	s, err := a.newSession(now, r, r.Unreserved)
	if err != nil {
		return 0, err
	}
	if r.Job == 0 {
		a.stats.TotalJobs++
	}
	return s.id, nil
}

// Reserve makes the reservation that a session was restored without, if there is room and no waiting request comes first. It
// reports whether the session has its reservation, made now or before. It returns false as well for a session that is unknown, or
// that waits for its start.
func (a *Arbiter) Reserve(now time.Time, id SessionID) bool {
	s := a.startedSession(id)
	if s == nil || !s.pending {
		return s != nil
	}
	defer a.cycle(now)
	t := a.startOf(s, Place{})
	a.sort(now)
	a.assignPlace(now, t)
	if v := a.evaluate(t); v.fits == nil && !v.final && a.recallHelps(t) {
		a.evaluate(t)
	}
	if t.evaluation.fits == nil {
		return false
	}
	a.reserve(s)
	return true
}

// RestoreLease opens a lease in a living session that holds something already: by a record of the
// daemon before this one, or by what a client says that no record confirms. What it holds is taken
// as it is, whether it fits or not: then sums only fall. But where it is unverified it has no more
// bytes than the device, and no more streams than there is room for what each is charged. On a lost device it holds nothing.
// ErrNoSession, also of a session that waits for its start; ErrNoDevice; ErrExists when the session has a lease there.
func (a *Arbiter) RestoreLease(now time.Time, id SessionID, held RestoredLease, w CreditWord) (LeaseInfo, error) {
	s, d := a.startedSession(id), a.device(held.Device)
	if s == nil {
		return LeaseInfo{}, noSession(id)
	}
	if d == nil {
		return LeaseInfo{}, noDevice(held.Device)
	}
	if s.leaseOn(d) != nil {
		return LeaseInfo{}, fmt.Errorf(wording.LeaseThere, id, d, ErrExists)
	}
	if held.Lost || d.lost {
		held = RestoredLease{Device: held.Device, Peak: held.Peak, Opened: held.Opened, Lost: true}
	}
	l := a.newLease(now, s, d, w)
	granted, streams := held.Granted, accounting.Bytes(max(held.Streams, 0))
	if held.Unverified { // a client's own word: no more than there is, or asking would get
		granted = min(granted, d.Total)
		if each := s.streamReserve(); each > 0 {
			streams = min(streams, l.Room()/each)
		}
	}
	l.Force(accounting.Memory, granted)
	l.SetAway(held.Away)
	l.Force(accounting.Streams, streams)
	l.delegated, l.delegatedMax = true, maxRestoredStreams // it may be, under the rules of the daemon before: its word tells
	l.contexts = min(max(held.Contexts, 0), maxObjects)
	l.peak, l.unverified, l.lost = held.Peak, held.Unverified, held.Lost
	if l.lost {
		a.loseLease(now, l)
	}
	if !held.Opened.IsZero() {
		l.opened = held.Opened
	}
	if s.opened.After(l.opened) {
		s.opened = l.opened
	}
	a.restoreObjects(now, l, held.Makers)
	if _, lent := l.word.Streams(); lent {
		a.renewDelegation(l)
	}
	a.charge(now, l)
	a.noteChain(l)
	a.Refresh(l.id)
	return a.info(l), nil
}
