package arbiter

import (
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/arbiter/pressure"
	"github.com/gpuarb/gpuarb/figures"
)

// The pressure of a device, a job or a user says for how long a request waited there for bytes (some), and for how long
// no thread there went on meanwhile (full). It does not grow while no request waits.

// gauge is the pressure of a device, a job or a user.
type gauge struct {
	waits   bool // a request waits for bytes there
	goes    bool // meanwhile a job with a lease there goes on
	tracker pressure.Tracker
}

// MeasurePressure notes at which devices, jobs and users requests wait for bytes from now on, and where jobs go on
// meanwhile. The caller calls it after its events, before any time passes. While no request waits it takes no time; else it
// looks at all requests that wait, and at the jobs of users and devices for which they wait.
func (a *Arbiter) MeasurePressure(now time.Time) {
	if len(a.tickets) == 0 && len(a.strained) == 0 {
		return
	}
	before := a.strained
	for _, g := range before {
		g.waits, g.goes = false, false
	}
	a.strained = nil
	for _, t := range a.tickets {
		a.markWaiting(t)
	}
	for _, j := range a.jobs {
		a.markGoing(j)
	}
	for _, g := range slices.Concat(before, a.strained) {
		g.measure(now)
	}
}

// markWaiting marks the devices where a ticket waits for bytes, its job and its user.
func (a *Arbiter) markWaiting(t *ticket) {
	for i := range t.spots {
		s := &t.spots[i]
		if !s.waitsForBytes() {
			continue
		}
		for _, g := range [...]*gauge{&s.device.gauge, &t.job.gauge, &t.job.person.gauge} {
			if !g.waits {
				g.waits = true
				a.strained = append(a.strained, g)
			}
		}
	}
}

// markGoing marks the devices on which a job that goes on has leases, the job and its user. Leases of processes that have ended, and
// those on lost devices, do not count.
func (a *Arbiter) markGoing(j *job) {
	open := j.gauge.isOpen() || j.person.gauge.isOpen() || slices.ContainsFunc(a.devices, func(d *device) bool { return d.gauge.isOpen() })
	if !open || !slices.ContainsFunc(j.sessions, (*session).goesOn) {
		return
	}
	for _, s := range j.sessions {
		for _, l := range s.leases {
			for _, g := range [...]*gauge{&l.device.gauge, &j.gauge, &j.person.gauge} {
				g.goes = g.goes || g.waits && s.alive() && !l.lost
			}
		}
	}
}

// isOpen reports whether a request waits there, and no job is known to go on yet.
func (g *gauge) isOpen() bool { return g.waits && !g.goes }

// measure tells the tracker which states hold from now on.
func (g *gauge) measure(now time.Time) {
	some, full := g.waits, g.waits && !g.goes
	if s, f := g.tracker.States(); s != some || f != full {
		g.tracker.Set(now, some, full)
	}
}

// waitsForBytes reports whether it is bytes that a ticket waits for at a spot: whether the narrowest limit that refuses it
// there, which the queue shows as the reason, is one of bytes.
func (s *spot) waitsForBytes() bool { return len(s.full) > 0 && s.full[0].ofBytes() }

// countWaiting counts a ticket of a thread that begins to wait (by 1), or does no longer (by -1).
func countWaiting(t *ticket, by int) {
	s := t.session
	if s == nil {
		return
	}
	if s.waits == nil {
		s.waits = make(map[uint32]int)
	}
	count(s.waits, t.thread, by)
}

// waiting returns how many threads of a process wait. Requests of an unknown thread are of one thread each.
func (s *session) waiting() int { return len(s.waits) + max(0, s.waits[0]-1) }

// blocked reports whether every thread of a process waits that ever made an intercepted call, as far as is known.
func (s *session) blocked() bool { return s.threads > 0 && s.waiting() >= s.threads }

// goesOn reports whether a process lives, and has a thread that may not wait.
func (s *session) goesOn() bool { return s.alive() && !s.blocked() }

// blocked reports whether every such thread of a job waits.
func (j *job) blocked() bool {
	return len(j.sessions) > 0 && !slices.ContainsFunc(j.sessions, (*session).goesOn)
}

// pressureState is what a snapshot has of a pressure.
func pressureState(t *pressure.Tracker, now time.Time) figures.PressureState {
	line := func(l pressure.Line) figures.PressureLine {
		percent := func(i int) float64 { return float64(l.Averages[i]) / 100 }
		return figures.PressureLine{Avg10: percent(0), Avg60: percent(1), Avg300: percent(2), TotalUs: uint64(l.Total.Microseconds())}
	}
	v := t.At(now)
	return figures.PressureState{Some: line(v.Some), Full: line(v.Full)}
}
