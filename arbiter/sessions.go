package arbiter

import (
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// This file has the calls of the daemon about client processes and their leases: a process begins, uses a device for the first time, and ends.

// OpenSession opens a client's session: in a job (ErrNoJob when that is over), or
// as a job of its own. Where the rule's memory.min has no room, it waits; a *Result
// tells that it never will have.
func (a *Arbiter) OpenSession(now time.Time, r SessionRequest) (SessionInfo, error) {
	defer a.cycle(now)
	s, err := a.newSession(now, r, true)
	if err != nil {
		return SessionInfo{}, err
	}
	t := a.startOf(s, r.Place)
	a.ask(now, t)
	answer := t.result()
	if answer.Reason != ReasonNone {
		a.startRefused(now, s, &answer)
		return SessionInfo{}, &answer
	}
	return SessionInfo{ID: s.id, Waiting: answer.Waiting}, nil
}

// HostMax returns how many bytes of pinned host memory the session's process may hold,
// accounting.Max for no limit. The arbiter keeps no count of them: the client keeps to it.
func (a *Arbiter) HostMax(id SessionID) accounting.Bytes {
	if s := a.sessions[id]; s != nil && s.job.Rule.HostMax != nil {
		return *s.job.Rule.HostMax
	}
	return accounting.Max
}

// EndSession tells that a client's process is dead, however it died: its leases
// drain, and their bytes are grantable only after Gone. Unknown sessions are ignored.
func (a *Arbiter) EndSession(now time.Time, id SessionID) {
	s := a.sessions[id]
	if s == nil || !s.alive() {
		return
	}
	defer a.cycle(now)
	a.cancelOf(now, s.job, func(t *ticket) bool { return t.session == s })
	if a.sessions[id] == nil { // it waited for its start
		return
	}
	for _, l := range s.leases {
		a.revokeStreams(l)
		a.recallIdle(l, a.idle(l)) // no memory is behind it
		if held := l.Granted(); held > 0 || l.Streams() > 0 || l.contexts > 0 {
			a.leaseEvent(now, l, Event{Kind: EventDied, Bytes: held, Streams: l.Streams(), Contexts: l.contexts})
		}
	}
	s.ended = now
	a.dropSlotsOf(now, s)
	a.changed() // all other processes of its job may be waiting
	for _, l := range slices.Clone(s.leases) {
		if l.lost { // the memory went with the device
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
	_, _ = a.setLimits(a.sessionChanges(nil, s), false) // what it has reserved is free
	a.draining = append(a.draining, s)
	a.endJob(now, s.job)
}

// Gone tells that the device no longer has the memory of an ended session: its
// bytes are free. What is not known, or still lives, is ignored.
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

// Attach opens the session's lease on a device, with this word; the same one each time.
// ErrNoSession, also of a session that waits for its start; ErrNoDevice; a *Result when the device is lost, or not one
// of the job's.
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
	if !s.job.uses(d) {
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

// Threads sets how many live threads of a client have made an intercepted call; 0: not known.
func (a *Arbiter) Threads(now time.Time, id SessionID, n int) {
	if s := a.sessions[id]; s != nil && s.threads != n {
		s.threads = max(0, n)
		a.changed()
		a.cycle(now)
	}
}
