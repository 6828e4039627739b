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

// This file restores jobs, sessions and leases of an earlier daemon. The daemon calls it when it starts, and when clients without a record
// resume. recount.go compares the clients' own sums.

// NextJob returns an ID that no job has had, for RestoreJob of a job whose ID is unknown.
func (a *Arbiter) NextJob() JobID { return a.lastJob + 1 }

// RestoreJob restores a job after a restart of the daemon, with the ID that it had. It must be called before the sessions of the job are
// restored, and before new jobs are opened. The reservations are made even if there is no room. Jobs whose runner has exited must be closed
// by CloseJob after all sessions are restored. Errors: ErrRange for ID 0, and ErrExists for an ID in use.
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
	if j.devices == nil && r.Devices != nil {
		j.devices = []*device{} // the devices that the job had do not exist any more
	}
	j.counts().since = now
	a.newJob(now, j)
	var keeps []*device
	for _, d := range a.devices {
		if j.kept(d, r.Keeps) && a.mayKeep(j, d) {
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

// kept reports whether a job kept a slot of a device before the restart. recorded are the devices in the record; nil: there is no record.
// With a record, limits that have changed since the job's start have no effect. Without a record, the present limits decide.
func (j *job) kept(d *device, recorded []int) bool {
	if recorded == nil {
		return j.keeps(d)
	}
	return !j.released && !d.lost && slices.Contains(recorded, d.Index)
}

// mayKeep reports whether a restored job may keep a slot of a device. It may not if a job that was restored before has the sole use of
// the device. Before the restart, one of these two jobs had no slot there, because it began while the device was lost, or while slots had no
// limit. For the same reason, a restored job with the sole use takes the slots of the jobs that were restored before it.
func (a *Arbiter) mayKeep(j *job, d *device) bool {
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

// RestoreSession restores a session after a restart of the daemon, in its job or in a job of its own. The session never waits, because its
// process already holds memory. The reservation is made even if there is no room, or only by [Arbiter.Reserve] if r.Unreserved is set.
// ErrNoJob: the job does not exist.
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

// Reserve makes the reservation of a session that was restored without one, if there is room and no waiting request comes first. It reports
// whether the session has its reservation. It returns false for an unknown session, and for one that waits to start.
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

// RestoreLease opens a lease that already holds something in a living session, from a record of an earlier daemon or from what the client
// reports. Held amounts are accepted even if they do not fit. Unverified amounts are limited to the bytes of the device and to the streams
// that there is room for. On a lost device the lease holds nothing. Errors: ErrNoSession, also if the session waits to start; ErrNoDevice;
// ErrExists if the session has a lease on the device.
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
	if held.Unverified { // reported by the client: limited to what exists, or what asking would get
		granted = min(granted, d.Total)
		if each := s.streamReserve(); each > 0 {
			streams = min(streams, l.Room()/each)
		}
	}
	l.Force(accounting.Memory, granted)
	l.SetAway(held.Away)
	l.Force(accounting.Streams, streams)
	l.delegated, l.delegatedMax = true, maxRestoredStreams // the earlier daemon may have delegated the count, and the page shows whether it did
	if l.contexts = min(max(held.Contexts, 0), maxObjects); l.contexts > 0 {
		l.extra.ContextsMade(now) // the device is read early, to know what they cost
	}
	l.peak, l.unverified, l.lost = held.Peak, held.Unverified, held.Lost
	if granted > 0 && !held.Unverified { // the process got memory there under an earlier configuration, and may go on
		l.outside = false
	}
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
	if _, delegated := l.word.Streams(); delegated {
		a.renewDelegation(l)
	}
	a.charge(now, l)
	a.noteChain(l)
	a.Refresh(l.id)
	return a.info(l), nil
}
