package arbiter

import (
	"cmp"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// This file stores events (event.go) until the daemon reads them. In the tally of a job, it also records the processes that use a device
// without the library.

// Events returns the events since the last call, oldest first. If the daemon does not call it for long, the oldest events are dropped.
func (a *Arbiter) Events() []Event {
	events := a.events
	a.events = nil
	return events
}

// maxEvents is how many events are stored for a reader that does not come. Then the older half is dropped.
const maxEvents = 8192

// event stores an event.
func (a *Arbiter) event(e Event) {
	if len(a.events) >= maxEvents {
		a.events = slices.Delete(a.events, 0, maxEvents/2)
	}
	if d := a.device(e.Device); d != nil {
		e.UUID, e.processor = d.UUID, !d.IsGPU()
	}
	a.events = append(a.events, e)
}

// leaseEvent stores an event about a lease. An event without text gets it from Sentence, when a reader asks for the text.
func (a *Arbiter) leaseEvent(now time.Time, l *lease, e Event) {
	e.Time, e.Device, e.Lease = now, l.device.Index, l.id
	e.about(l.session.process)
	e.in(l.session.job)
	if e.Text == "" {
		e.program = l.session.name()
	}
	a.event(e)
}

// deniedEvent stores the event that a request of a process was refused.
func (a *Arbiter) deniedEvent(now time.Time, s *session, e Event, why string) {
	e.about(s.process)
	e.in(s.job)
	e.Time, e.Kind, e.program, e.why = now, EventDenied, s.name(), why
	a.event(e)
}

// in sets the job of an event. If the event has no process, or is about the runner, the command becomes that of the job. If that
// job is the job of a cgroup, Sentence names no user, because the programs in the job are not those of the user who opened it.
func (e *Event) in(j *job) {
	e.Job, e.Name = j.id, j.request.Name
	if e.PID == 0 || j.run && e.PID == j.request.Process.PID {
		e.Command, e.bound = cmp.Or(j.request.Command, e.Command), j.request.Cgroup != ""
	}
}

// counts returns the tally of a job for a change.
func (j *job) counts() *tally {
	if j.tally == nil {
		j.tally = &tally{}
	}
	return j.tally
}

// counted returns a copy of the tally of a job.
func (j *job) counted() tally {
	if j.tally == nil {
		return tally{}
	}
	return *j.tally
}

// removeUnmanaged removes a process that now has a lease from the processes without one. After a restart without a state file, a reading of the
// device can list a client before the client resumes.
func (j *job) removeUnmanaged(d *device, p *rules.Process) {
	if j.tally == nil {
		return
	}
	t := j.tally
	t.unmanaged = slices.DeleteFunc(t.unmanaged, func(b UnmanagedProcess) bool {
		return b.PID == p.PID && b.StartTicks == p.StartTicks && b.Device == d.Index && b.Bypass == figures.BypassPassed
	})
}

// recordUnmanaged records what a reading shows of a process of the job without a lease on the device. isNew: the reading before did not list the
// process.
func (t *tally) recordUnmanaged(d *device, u *figures.UnmanagedState, isNew bool) {
	for i := range t.unmanaged {
		if b := &t.unmanaged[i]; b.PID == u.PID && b.StartTicks == u.StartTicks && b.Device == d.Index {
			b.Command, b.Bypass, b.Charged, b.Peak = u.Command, u.Bypass, u.Charged, max(b.Peak, u.Bytes)
			return
		}
	}
	if len(t.unmanaged) < maxUnmanaged {
		t.unmanaged = append(t.unmanaged, UnmanagedProcess{u.PID, u.StartTicks, d.Index, u.Command, u.Bytes, u.Bypass, u.Charged})
	} else if isNew {
		t.moreUnmanaged++
	}
}
