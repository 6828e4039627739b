package arbiter

import (
	"slices"
	"time"
)

// This file measures pressure. The pressure of a device, a job or a user is how long a request waited there for bytes (some), and how long
// no thread there ran meanwhile (full). It does not grow while no request waits. The daemon calls MeasurePressure after its events;
// gauge.go has the gauges.

// MeasurePressure records which devices, jobs and users have requests waiting for bytes from now on, and which of them have running jobs.
// The daemon calls it after its events, before time passes. If no request waits it costs nothing; else it goes through the waiting requests
// and the jobs.
func (a *Arbiter) MeasurePressure(now time.Time) {
	if len(a.tickets) == 0 && len(a.underPressure) == 0 {
		return
	}
	before := a.underPressure
	for _, g := range before {
		g.waiting, g.running = false, false
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

// markWaiting marks the gauges of the devices where a ticket waits for bytes, of its job and of its user.
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
			if !g.waiting {
				g.waiting = true
				a.underPressure = append(a.underPressure, g)
			}
		}
	}
}

// markGoing marks the gauges of the devices on which a running job has leases, of the job and of its user. Leases of ended processes and on
// lost devices do not count.
func (a *Arbiter) markGoing(j *job) {
	open := j.gauge.isOpen() || j.user.gauge.isOpen() || slices.ContainsFunc(a.devices, func(d *device) bool { return d.gauge.isOpen() })
	if !open || !slices.ContainsFunc(j.sessions, (*session).goesOn) {
		return
	}
	for _, s := range j.sessions {
		for _, l := range s.leases {
			for _, g := range [...]*gauge{&l.device.gauge, j.gauge, &j.user.gauge} {
				if g.isOpen() && s.alive() && !l.lost {
					g.running = true
				}
			}
		}
	}
}
