package arbiter

import (
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// This file has the daemon's calls about client processes: a process starts, uses a device for the first time, and ends. open.go and end.go
// change the state.

// OpenSession opens a client's session, in a job or in a job of its own. The session waits if its memory.min has no room. ErrNoJob: the job
// has ended. A *Result: the memory.min can never have room.
func (a *Arbiter) OpenSession(now time.Time, r SessionRequest) (SessionInfo, error) {
	defer a.cycle(now)
	s, err := a.newSession(now, r, true)
	if err != nil {
		return SessionInfo{}, err
	}
	t := a.startOf(s, r.Place)
	a.decideNew(now, t)
	answer := t.result()
	if answer.Reason != ReasonNone {
		a.startRefused(now, s, &answer)
		return SessionInfo{}, &answer
	}
	return SessionInfo{ID: s.id, Waiting: answer.Waiting}, nil
}

// HostMax returns how many bytes of pinned host memory a session may hold; accounting.Max: no limit. The client counts that memory itself.
func (a *Arbiter) HostMax(id SessionID) accounting.Bytes {
	if s := a.sessions[id]; s != nil && s.job.Rule.HostMax != nil {
		return *s.job.Rule.HostMax
	}
	return accounting.Max
}

// EndSession handles the end of a client's process. Its leases drain, and their bytes can be granted again only after Gone. Unknown
// sessions are ignored.
func (a *Arbiter) EndSession(now time.Time, id SessionID) {
	s := a.sessions[id]
	if s == nil || !s.alive() {
		return
	}
	defer a.cycle(now)
	a.cancelOf(now, s.job, func(t *ticket) bool { return t.session == s })
	if a.sessions[id] == nil { // the session waited to start
		return
	}
	s.job.died = false
	for _, l := range s.leases {
		a.revokeStreams(l)
		a.recallIdle(l, a.idle(l)) // no memory is behind idle credit
		if held := l.Granted(); held > 0 || l.Streams() > 0 || l.contexts > 0 {
			s.job.died = true
			a.leaseEvent(now, l, Event{Kind: EventDied, Bytes: held, Streams: l.Streams(), Contexts: l.contexts})
		}
	}
	s.ended = now
	for _, l := range s.leases {
		a.countUsage(l)
	}
	a.dropSlotsOf(now, s)
	a.changed() // all other processes of its job may be waiting
	for _, l := range slices.Clone(s.leases) {
		if l.lost { // its memory went with the device
			a.closeLease(now, l)
		}
	}
	if a.sessions[id] == nil {
		return
	}
	if len(s.leases) == 0 {
		a.dropSession(now, s)
		return
	}
	_, _ = a.setLimits(a.sessionChanges(nil, s), false) // releases the reservation
	a.draining = append(a.draining, s)
	a.endJob(now, s.job)
}

// Gone records that the device has freed the memory of an ended session, so that its bytes can be granted. Unknown and living sessions are
// ignored.
func (a *Arbiter) Gone(now time.Time, id SessionID, device int) {
	s := a.sessions[id]
	if s == nil || s.alive() {
		return
	}
	defer a.cycle(now)
	if l := s.leaseOn(a.device(device)); l != nil {
		a.closeDrained(now, l)
	}
}

// Attach opens the session's lease on a device with a credit word. Later calls for the same device return the lease that exists. Errors:
// ErrNoSession, also if the session waits to start; ErrNoDevice; a *Result if the device is lost or not one of the job's. If the rule does
// not allow the device, the lease is opened, and its requests are refused with the reason (neverFits).
func (a *Arbiter) Attach(now time.Time, id SessionID, device int, w CreditWord) (LeaseInfo, error) {
	s, d := a.startedSession(id), a.device(device)
	if s == nil {
		return LeaseInfo{}, noSession(id)
	}
	if d == nil {
		return LeaseInfo{}, noDevice(device)
	}
	if d.lost {
		return LeaseInfo{}, lostRefusal(d)
	}
	if d.IsGPU() && !s.job.assigned(d) && s.job.allows(d) {
		return LeaseInfo{}, s.job.notItsDevice(d)
	}
	l := s.leaseOn(d)
	switch {
	case l == nil:
		l = a.newLease(now, s, d, w)
		a.Refresh(l.id)
		a.leaseEvent(now, l, Event{Kind: EventGranted, What: AsksLease, Limit: a.info(l).Budget})
	case l.lost:
		return LeaseInfo{}, lostRefusal(d)
	}
	return a.info(l), nil
}

// Threads sets how many live threads of a client have made an intercepted call; 0: unknown.
func (a *Arbiter) Threads(now time.Time, id SessionID, n int) {
	if s := a.sessions[id]; s != nil && s.threads != n {
		s.threads = max(0, n)
		a.changed()
		a.cycle(now)
	}
}
