package usage

import (
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// This file has the sums. integrate.go of package arbiter says when the amounts change.

// Amounts are bytes at one moment.
type Amounts struct {
	Held     accounting.Bytes // what programs have allocated
	Granted  accounting.Bytes // Held, with idle credit
	Reserved accounting.Bytes // memory.min, used or not
}

// Sums are amounts over time, in byte-seconds. Committed counts the larger of Held and Reserved at each moment.
type Sums struct{ Held, Granted, Reserved, Committed float64 }

// Meter sums the amounts of a job on a device. The zero Meter has seen nothing. A copy is independent.
type Meter struct {
	Now  Amounts // amounts from the next Measure on; the owner changes them
	sums Sums
	was  Amounts   // amounts since at
	at   time.Time // time up to which sums counts; zero: nothing is counted
	last time.Time // Held has changed at an unknown moment after this time; zero: the moment is known
}

// Sampled notes that Now.Held was set to what a look has found: it changed at an unknown moment since the look before, which was at last.
// For the time since last, the sum counts the mean of both values.
func (m *Meter) Sampled(last time.Time) { m.last = last }

// Exact notes that Now.Held has changed at this moment.
func (m *Meter) Exact() { m.last = time.Time{} }

// Measure counts the time up to now with the amounts until now. Time from now on counts with the amounts in Now. A time before the last one
// counts as the last one.
func (m *Meter) Measure(now time.Time) {
	m.sums = m.At(now)
	if m.at.IsZero() || now.After(m.at) {
		m.at = now
	}
	m.was, m.last = m.Now, time.Time{}
}

// At returns the sums up to a time. It does not change the meter.
func (m *Meter) At(now time.Time) Sums {
	s, span := m.sums, now.Sub(m.at).Seconds()
	if m.at.IsZero() || span <= 0 {
		return s
	}
	held := float64(m.was.Held)
	if unknown := min(now.Sub(m.last).Seconds(), span); !m.last.IsZero() && unknown > 0 {
		held += (float64(m.Now.Held) - held) / 2 * unknown / span
	}
	reserved := float64(m.was.Reserved)
	s.Held += held * span
	s.Granted += max(held, float64(m.was.Granted)) * span
	s.Reserved += reserved * span
	s.Committed += max(held, reserved) * span
	return s
}

// Idle reports whether nothing is held or reserved from now on.
func (m *Meter) Idle() bool { return m.Now == Amounts{} && m.was == Amounts{} }
