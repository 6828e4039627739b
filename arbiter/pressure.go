package arbiter

import (
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/pressure"
)

// The pressure of a device, a job or a user says for how long somebody waited there for bytes (some), and for how long
// nobody went on meanwhile (full). What it follows from is counted as it changes: a request that is granted at once
// changes nothing of it, any other change takes as long however many wait.

// PressureOf says whose pressure it is: a device's, a job's (Job is not 0) or a user's (User).
type PressureOf struct {
	Device int
	Job    JobID
	User   bool
	UID    uint32
}

// gauge counts at a device, a job or a user the requests that wait for bytes there, and the jobs with a lease there of which a
// thread may go on.
type gauge = pressure.Gauge[PressureOf]

// PressureChange is a change of a pressure, for the state file.
type PressureChange = pressure.Change[PressureOf]

// PressureChanges returns the pressures that have changed since the last call, each once.
func (a *Arbiter) PressureChanges() []PressureChange { return a.pressures.Changes() }

// Strained reports whether anybody waits for bytes: time counts for some pressure.
func (a *Arbiter) Strained() bool {
	return slices.ContainsFunc(a.devices, func(d *device) bool { return d.gauge.Waits() })
}

// ResumePressure has totals go on from what they were under the daemon before this one, which must be told before anybody
// waits. For a device or a job that is not there it does nothing.
func (a *Arbiter) ResumePressure(now time.Time, of PressureOf, user string, some, full time.Duration) {
	switch {
	case of.User:
		a.pressures.Resume(now, &a.person(of.UID, user).gauge, some, full)
	case of.Job != 0:
		if j := a.jobs[of.Job]; j != nil {
			a.pressures.Resume(now, &j.gauge, some, full)
		}
	default:
		if d := a.device(of.Device); d != nil {
			a.pressures.Resume(now, &d.gauge, some, full)
		}
	}
}

// waitsForBytes reports whether it is bytes that a ticket waits for at a spot: whether the narrowest limit that refuses it
// there, which the queue shows as the reason, is one of bytes.
func (s *spot) waitsForBytes() bool { return s.at != 0 && s.reason() != ReasonSlots }

// press brings the gauges up to date with what a ticket that was judged, or that waits no longer, waits for.
func (a *Arbiter) press(now time.Time, t *ticket) {
	before := t.presses()
	for i := range t.spots {
		s := &t.spots[i]
		waits := !t.done && s.waitsForBytes()
		if waits == s.pressing {
			continue
		}
		by := 1
		if !waits {
			by = -1
		}
		s.pressing = waits
		a.pressures.Count(now, by, 0, &s.device.gauge)
	}
	if by := t.presses() - before; by != 0 {
		a.pressures.Count(now, by, 0, &t.job.gauge, &t.job.person.gauge)
	}
}

// presses is 1 for a ticket that waits for bytes at one of its spots, else 0.
func (t *ticket) presses() int {
	if slices.ContainsFunc(t.spots, func(s spot) bool { return s.pressing }) {
		return 1
	}
	return 0
}

// countWaiting counts a ticket that begins to wait (by 1), or does no longer (by -1).
func (a *Arbiter) countWaiting(now time.Time, t *ticket, by int) {
	if a.press(now, t); t.session != nil {
		count(t.session.waits, t.thread, by)
		a.recountGoing(now, t.session)
	}
}

func sign(n int) int { return min(n, 1) }

// waiting is how many threads of a process wait: those whose thread is not known are of one each.
func (s *session) waiting() int { return len(s.waits) + max(0, s.waits[0]-1) }

// blocked reports whether every thread of a process waits that ever made an intercepted call, as far as is known.
func (s *session) blocked() bool { return s.threads > 0 && s.waiting() >= s.threads }

// blocked reports whether every such thread of a job waits.
func (j *job) blocked() bool { return len(j.sessions) > 0 && j.going == 0 }

// recountGoing notes whether a process goes on that has changed: it lives, and a thread of it may not wait.
func (a *Arbiter) recountGoing(now time.Time, s *session) {
	a.setGoing(now, s, s.alive() && !s.blocked())
}

func (a *Arbiter) setGoing(now time.Time, s *session, goes bool) {
	if goes == s.goes {
		return
	}
	j, by := s.job, 1
	if !goes {
		by = -1
	}
	s.goes = goes
	before := sign(j.going)
	if j.going += by; sign(j.going) == before {
		return
	}
	for _, u := range j.used {
		if u.leases > 0 {
			a.pressures.Count(now, 0, by, &u.device.gauge)
		}
	}
	if j.leasedOn() > 0 {
		a.pressures.Count(now, 0, by, &j.gauge, &j.person.gauge)
	}
}

// setCounted has a lease count among those that its job has on the device: while it is open, until its process has ended
// or it is lost.
func (a *Arbiter) setCounted(now time.Time, l *lease, counted bool) {
	if counted == l.isCounted {
		return
	}
	j, by := l.session.job, 1
	if !counted {
		by = -1
	}
	l.isCounted = counted
	u := j.useOf(l.device)
	before := sign(u.leases)
	if u.leases += by; sign(u.leases) == before || j.going == 0 {
		return
	}
	a.pressures.Count(now, 0, by, &u.device.gauge)
	if j.leasedOn() == max(0, by) { // its first, or its last device
		a.pressures.Count(now, 0, by, &j.gauge, &j.person.gauge)
	}
}

// leasedOn is on how many devices a job has leases.
func (j *job) leasedOn() (n int) {
	for _, u := range j.used {
		n += sign(u.leases)
	}
	return n
}

// pressureState is what a snapshot has of a pressure.
func pressureState(t *pressure.Tracker, now time.Time) accounting.PressureState {
	line := func(l pressure.Line) accounting.PressureLine {
		percent := func(i int) float64 { return float64(l.Averages[i]) / 100 }
		return accounting.PressureLine{Avg10: percent(0), Avg60: percent(1), Avg300: percent(2), TotalUs: uint64(l.Total.Microseconds())}
	}
	v := t.At(now)
	return accounting.PressureState{Some: line(v.Some), Full: line(v.Full)}
}
