package statefile

import "sync/atomic"

// Whose pressure a record keeps (Pressure.Kind), and what its Key is.
const (
	PressureOfDevice  uint32 = iota + 1 // the device's UUID
	PressureOfJob                       // the job's token
	PressureOfProcess                   // a process that is a job by itself: its PID and when it started
	PressureOfUser                      // the user's number
)

// Pressure is for how long somebody waited for bytes somewhere, and for how long nobody went on meanwhile. Of the two values
// one holds, and the other is written: a daemon that is killed leaves a whole one.
type Pressure struct {
	Live   uint32
	Kind   uint32
	Key    [16]byte
	Holds  uint32 // which of Values does
	Pad    uint32
	Values [2]PressureValue
}

// PressureValue is what a pressure came to at a moment, and which states have held since. Durations are in nanoseconds, Since
// in nanoseconds of the boot's own clock.
type PressureValue struct {
	Some, Full int64
	Since      int64
	States     uint32
	Pad        uint32
}

// The states in PressureValue.States.
const (
	PressureSome uint32 = 1 << iota
	PressureFull
)

// Set has another value hold.
func (p *Pressure) Set(v PressureValue) {
	next := 1 - p.Holds&1
	p.Values[next] = v
	atomic.StoreUint32(&p.Holds, next)
}

// Totals is what a pressure had come to when the daemon that wrote it was last known to live: what that daemon had not seen
// counts for nobody. What cannot be, since the file was damaged, is nothing.
func (p *Pressure) Totals(alive int64) (some, full int64) {
	v := p.Values[p.Holds&1]
	some, full = max(v.Some, 0), max(v.Full, 0)
	if held := alive - v.Since; v.Since >= 0 && held > 0 {
		if v.States&PressureSome != 0 {
			some += held
		}
		if v.States&PressureFull != 0 {
			full += held
		}
	}
	if some < 0 || some > alive {
		return 0, 0
	}
	return some, min(full, some)
}
