package arbiter

import (
	"slices"
	"time"
)

// The pressure of a device, a job or a user says for how long a request waited there for bytes (some), and for how long
// no thread there went on meanwhile (full). It does not grow while no request waits. The daemon calls MeasurePressure after its events.

// MeasurePressure notes at which devices, jobs and users requests wait for bytes from now on, and where jobs go on
// meanwhile. The caller calls it after its events, before any time passes. While no request waits it takes no time; else it
// looks at all requests that wait, and at the jobs of users and devices for which they wait.
func (a *Arbiter) MeasurePressure(now time.Time) {
	if len(a.tickets) == 0 && len(a.underPressure) == 0 {
		return
	}
	before := a.underPressure
	for _, g := range before {
		g.waits, g.goes = false, false
	}
	a.underPressure = nil
	for _, t := range a.tickets {
		a.markWaiting(t)
	}
	for _, j := range a.jobs {
		a.markGoing(j)
	}
	for _, g := range slices.Concat(before, a.underPressure) {
		g.measure(now)
	}
}

// markWaiting marks the devices where a ticket waits for bytes, its job and its user.
func (a *Arbiter) markWaiting(t *ticket) {
	for i := range t.candidates {
		s := &t.candidates[i]
		if !s.waitsForBytes() {
			continue
		}
		if t.job.gauge == nil {
			t.job.gauge = &gauge{}
		}
		for _, g := range [...]*gauge{&s.device.gauge, t.job.gauge, &t.job.user.gauge} {
			if !g.waits {
				g.waits = true
				a.underPressure = append(a.underPressure, g)
			}
		}
	}
}

// markGoing marks the devices on which a job that goes on has leases, the job and its user. Leases of processes that have ended, and
// those on lost devices, do not count.
func (a *Arbiter) markGoing(j *job) {
	open := j.gauge.isOpen() || j.user.gauge.isOpen() || slices.ContainsFunc(a.devices, func(d *device) bool { return d.gauge.isOpen() })
	if !open || !slices.ContainsFunc(j.sessions, (*session).goesOn) {
		return
	}
	for _, s := range j.sessions {
		for _, l := range s.leases {
			for _, g := range [...]*gauge{&l.device.gauge, j.gauge, &j.user.gauge} {
				if g.isOpen() && s.alive() && !l.lost {
					g.goes = true
				}
			}
		}
	}
}
