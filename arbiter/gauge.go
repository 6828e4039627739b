package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/arbiter/pressure"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// This file has the gauge of a device, a job or a user: how long requests waited for bytes there, and how long no job ran meanwhile.
// pressure.go sets the gauges, and snapshots show them.

// gauge is the pressure of a device, a job or a user.
type gauge struct {
	waiting bool // a request waits for bytes there
	running bool // a job with a lease there runs meanwhile
	tracker pressure.Tracker
}

// isOpen reports whether a request waits there and no running job is known yet. It is false for a nil gauge.
func (g *gauge) isOpen() bool { return g != nil && g.waiting && !g.running }

// measure passes the states that hold from now on to the tracker.
func (g *gauge) measure(now time.Time) {
	some, full := g.waiting, g.waiting && !g.running
	if s, f := g.tracker.States(); s != some || f != full {
		g.tracker.Set(now, some, full)
	}
}

// pressureState returns a pressure as snapshots show it.
func pressureState(t *pressure.Tracker, now time.Time) figures.PressureState {
	line := func(l pressure.Line) figures.PressureLine {
		percent := func(i int) float64 { return float64(l.Averages[i]) / 100 }
		return figures.PressureLine{Avg10: percent(0), Avg60: percent(1), Avg300: percent(2), TotalUs: uint64(l.Total.Microseconds())}
	}
	v := t.At(now)
	return figures.PressureState{Some: line(v.Some), Full: line(v.Full)}
}
