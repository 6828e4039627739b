package arbiter

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

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

// startOf returns the request for what a session reserves at its start.
func (a *Arbiter) startOf(s *session, place Place) *ticket {
	t := &ticket{kind: wantsSession, job: s.job, session: s, place: place}
	for _, d := range a.devices {
		if d.lost || !s.job.uses(d) {
			continue
		}
		if n, _ := t.reserves(d); n > 0 || s.job.shared != nil && s.job.shared.limits(d).Min > 0 {
			t.spots = append(t.spots, spot{device: d})
		}
	}
	return t
}

// starts reports whether the session waits for what it reserves at its start. While it waits it has no lease.
func (s *session) starts() bool {
	return s.pending && slices.ContainsFunc(s.job.tickets, func(t *ticket) bool { return t.session == s && t.kind == wantsSession })
}

// begun returns a session that may have leases: its process lives, and it does not wait for its start. nil: there is none.
func (a *Arbiter) begun(id SessionID) *session {
	if s := a.sessions[id]; s != nil && s.alive() && !s.starts() {
		return s
	}
	return nil
}

// newSession puts a session in place, and its job where it is one of its own. A pending
// one reserves nothing yet.
func (a *Arbiter) newSession(now time.Time, r SessionRequest, pending bool) (*session, error) {
	j := a.jobs[r.Job]
	if r.Job != 0 && (j == nil || j.pending) {
		return nil, fmt.Errorf(wording.JobEnded, r.Job, ErrNoJob)
	}
	if j == nil {
		request := JobRequest{Process: r.Process, Command: r.Process.Command}
		j = &job{id: a.lastJob + 1, request: request, Job: rules.Job{Rule: a.policy.For(r.Process)}, closed: true, pending: pending}
		a.newJob(now, j)
	}
	a.lastSession++
	s := &session{Client: rules.Client{In: &j.Job, Asked: rules.Request{Max: r.Max}}, id: a.lastSession, process: r.Process, job: j, opened: now, pending: pending,
		onFull: r.OnFull, slots: max(0, r.Slots), slotScope: r.SlotScope, reserve: r.StreamReserve}
	if r.Streams != 0 {
		s.Asked.Streams = max(1, r.Streams)
	}
	s.budget = a.ledger.OpenBudget(j.budget)
	s.budget.Owner = s
	a.linkSession(s)
	_, _ = a.setLimits(a.sessionChanges(nil, s), false)
	j.sessions = append(j.sessions, s)
	a.sessions[s.id] = s
	return s, nil
}

// limits are the limits of one process on a device, as they are in force.
func (s *session) limits(d *device) accounting.Limits {
	return inForce(s.Memory(d.bounds()), d, !s.pending && s.job.uses(d))
}

// streamReserve is what each of the session's streams is charged.
func (s *session) streamReserve() accounting.Bytes {
	if s.reserve != nil {
		return *s.reserve
	}
	return s.job.Rule.StreamReserve
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
		a.takeStreams(l)
		a.take(l, a.idle(l)) // no memory is behind it
		if held := l.Granted(); held > 0 || l.Streams() > 0 || l.contexts > 0 {
			a.leaseEvent(now, l, Event{Kind: EventDied, Bytes: held, Streams: l.Streams(), Contexts: l.contexts})
		}
	}
	s.ended = now
	a.leave(now, s)
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
		a.reclaim(now, l)
	}
}

// Attach opens the session's lease on a device, with this word; the same one each time.
// ErrNoSession, also of a session that waits for its start; ErrNoDevice; a *Result when the device is lost, or not one
// of the job's.
func (a *Arbiter) Attach(now time.Time, id SessionID, device int, w Word) (LeaseInfo, error) {
	s, d := a.begun(id), a.device(device)
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

// Refresh has the word of a lease show its flags and limit, whatever it showed: its page may be another
// one. Leases that are unknown or ended are ignored.
func (a *Arbiter) Refresh(id LeaseID) {
	l := a.leases[id]
	if l == nil || !l.session.alive() {
		return
	}
	l.closed, l.notify = l.lost || l.Over(), !l.lost && l.wanted()
	a.flag(l)
	l.word.Limit(l.maxInForce())
	if l.contended() {
		a.recallAll(l)
	}
}

// leaseOn is the session's lease on a device; nil: it has none.
func (s *session) leaseOn(d *device) *lease {
	for _, l := range s.leases {
		if l.device == d {
			return l
		}
	}
	return nil
}

// info describes a lease to its client.
func (a *Arbiter) info(l *lease) LeaseInfo {
	return LeaseInfo{
		ID: l.id, Budget: l.maxInForce(), Streams: l.Streams(),
		StreamsMax: l.StreamsMax(), Total: l.device.Total, SlotScope: l.scope,
	}
}

// lostRefusal refuses what concerns a lost device.
func lostRefusal(d *device) *Result {
	return &Result{Reason: ReasonDeviceLost, Explain: fmt.Sprintf(wording.Lost, d, wording.Plain(d.Name))}
}

// newLease opens a lease that holds nothing. What its word shows, Refresh decides.
func (a *Arbiter) newLease(now time.Time, s *session, d *device, w Word) *lease {
	a.lastLease++
	w.Opened(a.lastLease)
	l := &lease{id: a.lastLease, word: w, session: s, device: d, opened: now, scope: a.scopeOf(s, d), touched: now}
	if err := a.ledger.OpenLease(l, s.budget, d.Index, s.Streams().Max); err != nil {
		panic("arbiter: " + err.Error()) // the ledger has every device
	}
	s.leases = append(s.leases, l)
	d.byPID[s.process.PID] = append(d.byPID[s.process.PID], l)
	a.leases[l.id] = l
	s.job.tally.resumed(d, &s.process)
	return l
}

// reclaim closes a drained lease: its bytes are free for others.
func (a *Arbiter) reclaim(now time.Time, l *lease) {
	a.stats.ReclaimedLeases++
	bytes := l.Granted()
	a.leaseEvent(now, l, Event{Kind: EventReclaimed, Bytes: bytes, Text: fmt.Sprintf(wording.Reclaimed, l.session.name(), bytes.Human(), l.device)})
	a.closeLease(now, l)
}

// closeLease takes a lease of an ended session out, with all that it holds, and the session with its last one.
func (a *Arbiter) closeLease(now time.Time, l *lease) {
	s, d := l.session, l.device
	d.peak.update(l.seen, 0, 0)
	s.job.useOf(d).update(l.seen, 0, 0)
	l.seen = 0
	delete(d.aparts, l)
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
