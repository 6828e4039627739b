package daemon

// This file reads the suspensions of jobs that the last daemon recorded (suspensions.go). recoversuspensions.go gives them to the arbiter.

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/statefile"
)

// timeOfRecord converts a time of a record back: it undoes recordedTime.
func (d *Daemon) timeOfRecord(at int64) time.Time {
	if at == 0 {
		return time.Time{}
	}
	return d.now().Add(time.Duration(at) - d.uptime())
}

// savedSuspension is a suspension that the last daemon recorded.
type savedSuspension struct {
	arbiter.Suspension
	row    int // index of its record
	serial uint64
	done   bool // it was given to the arbiter, or its job has ended
}

// readSuspensions returns the suspensions that the last daemon recorded, the newest first. It frees damaged records. If two records have
// the same owner, it frees the older one.
func (d *Daemon) readSuspensions() (all []*savedSuspension) {
	d.file.Suspensions.Each(func(i int, r *statefile.Suspension) {
		d.suspensions.serial = max(d.suspensions.serial, r.Serial)
		s, err := d.suspensionIn(r)
		if err != nil {
			d.log.Warn("the record of a suspended job makes no sense: the job is not asked to take its memory again", "job", r.Job, "err", err)
			d.file.Suspensions.Free(i)
			return
		}
		all = append(all, &savedSuspension{Suspension: s, row: i, serial: r.Serial})
	})
	slices.SortFunc(all, func(x, y *savedSuspension) int { return cmp.Compare(y.serial, x.serial) })
	seen := map[string]bool{}
	return slices.DeleteFunc(all, func(s *savedSuspension) (replaced bool) {
		if replaced = seen[s.owner()]; replaced {
			d.file.Suspensions.Free(s.row)
		}
		seen[s.owner()] = true
		return replaced
	})
}

// owner returns a text that names the owner of a suspension. An owner can have one suspension only. It is a unit that was asked to stop,
// else a job that has a record of its own (its key), else a process (its PID and start time).
func (s *savedSuspension) owner() string {
	switch {
	case s.How == rules.EvictByUnit && s.State != arbiter.Resident:
		return s.Unit
	case s.Key != "":
		return s.Key
	}
	return fmt.Sprint(s.Process.PID, " ", s.Process.StartTicks)
}

// suspensionIn converts a record to a suspension, without the memory that the job held (heldLocked). It fails if the record is damaged.
func (d *Daemon) suspensionIn(r *statefile.Suspension) (s arbiter.Suspension, err error) {
	if r.Job == 0 || r.Job >= maxJobID || int(r.State) >= len(residences) || r.Devices > statefile.MaxSuspendedOn || r.Failures > 1<<20 {
		return s, fmt.Errorf("state %d, %d devices", r.State, r.Devices)
	}
	s = arbiter.Suspension{Job: arbiter.JobID(r.Job), State: residences[r.State], How: rules.EvictByHook, Unit: r.UnitOf(), Answered: r.Flags&statefile.SuspendAnswered != 0,
		Asked: d.timeOfRecord(r.Asked), Resumed: d.timeOfRecord(r.Resumed), NotUntil: d.timeOfRecord(r.NotUntil), Failures: int(r.Failures)}
	if r.Flags&statefile.SuspendedByUnit != 0 {
		s.How = rules.EvictByUnit
	}
	if r.Key != [8]byte{} {
		s.Key = hex.EncodeToString(r.Key[:])
	}
	if r.Arrival != 0 {
		s.Return = arbiter.Place{Arrival: r.Arrival, Since: d.timeOfRecord(r.Since)}
	}
	return s, json.Unmarshal(r.FactsOf(), &s.Process)
}
