package usage

import (
	"testing"
	"time"
)

// This file checks the sums of a meter.

// TestMeter checks the sums against multiplications by hand.
func TestMeter(t *testing.T) {
	t.Parallel()
	at := func(s float64) time.Time { return time.Unix(1000, 0).Add(time.Duration(s * float64(time.Second))) }
	var m Meter
	m.Now = Amounts{Held: 100, Granted: 104, Reserved: 50}
	m.Measure(at(0))
	m.Now.Held, m.Now.Granted = 0, 0
	if got, want := m.At(at(2)), (Sums{200, 208, 100, 200}); got != want {
		t.Errorf("100 bytes for 2 s of a reservation of 50: %+v, want %+v", got, want)
	}
	m.Measure(at(2))
	if got, want := m.At(at(5)), (Sums{200, 208, 250, 350}); got != want {
		t.Errorf("then the reservation alone for 3 s: %+v, want %+v", got, want)
	}
	m.Measure(at(5))
	m.Now = Amounts{Held: 100}
	m.Sampled(at(5))
	m.Measure(at(6))
	if got := m.At(at(6)).Held; got != 250 {
		t.Errorf("from 0 to 100 bytes at some moment of a second: %v byte-seconds, want 50 more than 200", got)
	}
	if got := m.At(at(5)).Held; got != 250 {
		t.Errorf("a time before the last one: %v, want 250", got)
	}
	m.Now.Held = 0
	m.Sampled(at(9)) // it held 100 bytes at the last look
	if got := m.At(at(10)).Held; got != 250+350 {
		t.Errorf("from 100 bytes to 0 in the last of four seconds: %v, want 350 more than 250", got)
	}
	m.Now.Held = 100
	m.Exact()
	if m.Idle() {
		t.Error("100 bytes are held")
	}
	m.Now = Amounts{}
	m.Measure(at(7))
	if !m.Idle() || m.At(at(9)).Held != 350 {
		t.Errorf("nothing is held: %+v", m.At(at(9)))
	}
}
