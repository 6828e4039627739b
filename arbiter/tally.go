package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// Tally is what became of a job so far.
type Tally struct {
	Waits   uint64        // requests that had to wait, and wait no more
	Waited  time.Duration // summed over them
	Refused uint64
	Since   time.Duration // how long ago counting began, where that was not with the job; else 0
	Devices []TallyDevice // those that it used
}

// TallyDevice is a job's account on a device.
type TallyDevice struct {
	Device int
	Peak   accounting.Bytes // the most that its processes used at once
	Max    accounting.Bytes // of the job as a whole; accounting.Max: none
}

// Tally returns what became of a job so far; false where there is none.
func (a *Arbiter) Tally(now time.Time, id JobID) (Tally, bool) {
	j := a.jobs[id]
	if j == nil {
		return Tally{}, false
	}
	sum := Tally{Waits: j.tally.waits, Waited: j.tally.waited, Refused: j.tally.refused}
	if !j.tally.since.IsZero() {
		sum.Since = max(now.Sub(j.tally.since), time.Millisecond)
	}
	for _, s := range j.sessions {
		for _, l := range s.leases {
			a.look(l)
		}
	}
	for _, p := range j.used {
		if p.most > 0 {
			sum.Devices = append(sum.Devices, TallyDevice{p.device.Index, p.most, j.limits(p.device).Max})
		}
	}
	return sum, true
}
