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

// gauge counts, at a device, a job or a user, what its pressure follows from.
type gauge struct {
	of      PressureOf
	waiting int               // requests that wait for bytes there
	going   int               // jobs with a lease there of which a thread may go on
	tracker *pressure.Tracker // nil: nobody ever waited
	changed bool              // since PressureChanges was called
}

// PressureOf says whose pressure it is: a device's, a job's (Job is not 0) or a user's (User).
type PressureOf struct {
	Device int
	Job    JobID
	User   bool
	UID    uint32
}

// PressureChange is a change of a pressure, which the next daemon goes on from. At Since the totals were as told, and from
// then on the states are.
type PressureChange struct {
	Of                   PressureOf
	Since                time.Time
	Some, Full           bool
	SomeTotal, FullTotal time.Duration
	Gone                 bool // whose it was is not there any more
}

// PressureChanges returns the pressures that have changed since the last call, each once.
func (a *Arbiter) PressureChanges() []PressureChange {
	if len(a.gauges) == 0 && len(a.pressureGone) == 0 {
		return nil
	}
	changes := a.pressureGone
	for _, g := range a.gauges {
		if g.changed {
			g.changed = false
			changes = append(changes, g.change())
		}
	}
	clear(a.gauges)
	a.gauges, a.pressureGone = a.gauges[:0], nil
	return changes
}

func (g *gauge) change() PressureChange {
	c := PressureChange{Of: g.of, Since: g.tracker.Since()}
	c.Some, c.Full = g.tracker.States()
	c.SomeTotal, c.FullTotal = g.tracker.Totals()
	return c
}

// Strained reports whether anybody waits for bytes: time counts for some pressure.
func (a *Arbiter) Strained() bool {
	return slices.ContainsFunc(a.devices, func(d *device) bool { return d.gauge.waiting > 0 })
}

// ResumePressure has totals go on from what they were under the daemon before this one, which must be told before anybody
// waits. For a device or a job that is not there it does nothing.
func (a *Arbiter) ResumePressure(now time.Time, of PressureOf, user string, some, full time.Duration) {
	var g *gauge
	switch {
	case of.User:
		g = &a.person(of.UID, user).gauge
	case of.Job != 0:
		if j := a.jobs[of.Job]; j != nil {
			g = &j.gauge
		}
	default:
		if d := a.device(of.Device); d != nil {
			g = &d.gauge
		}
	}
	if g == nil || g.tracker != nil {
		return
	}
	t := pressure.Resumed(now, some, full)
	g.tracker = &t
	a.gaugeChanged(g)
}

// measure has a gauge's pressure be as its counts say from now on.
func (a *Arbiter) measure(now time.Time, g *gauge) {
	some := g.waiting > 0
	full := some && g.going == 0
	if g.tracker == nil {
		if !some {
			return
		}
		g.tracker = &pressure.Tracker{}
	}
	if s, f := g.tracker.States(); s != some || f != full {
		g.tracker.Set(now, some, full)
		a.gaugeChanged(g)
	}
}

func (a *Arbiter) gaugeChanged(g *gauge) {
	if !g.changed {
		g.changed = true
		a.gauges = append(a.gauges, g)
	}
}

// forgetGauge is for a gauge of what is no more.
func (a *Arbiter) forgetGauge(g *gauge) {
	if g.changed = false; g.tracker != nil {
		a.pressureGone = append(a.pressureGone, PressureChange{Of: g.of, Gone: true})
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
		s.device.gauge.waiting += by
		a.measure(now, &s.device.gauge)
	}
	if by := t.presses() - before; by != 0 {
		for _, g := range [...]*gauge{&t.job.gauge, &t.job.person.gauge} {
			g.waiting += by
			a.measure(now, g)
		}
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
			u.device.gauge.going += by
			a.measure(now, &u.device.gauge)
		}
	}
	if j.leasedOn() > 0 {
		a.goesOn(now, j, by)
	}
}

// goesOn notes that a job with a lease goes on (by 1), or does no longer (by -1), for its own pressure and its user's.
func (a *Arbiter) goesOn(now time.Time, j *job, by int) {
	for _, g := range [...]*gauge{&j.gauge, &j.person.gauge} {
		g.going += by
		a.measure(now, g)
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
	u.device.gauge.going += by
	a.measure(now, &u.device.gauge)
	if j.leasedOn() == max(0, by) { // its first, or its last device
		a.goesOn(now, j, by)
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
