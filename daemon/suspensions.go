package daemon

// This file records the suspensions of jobs in a state file. lock.go calls it whenever the daemon's lock is released. When the next daemon
// starts, savedsuspensions.go reads the records.

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/faults"
	"github.com/gpuarb/gpuarb/internal/statefile"
)

// residences has each residence at the index by which a record names it. A new residence must be added at the end, because old records
// remain.
var residences = []arbiter.Residence{arbiter.Resident, arbiter.Suspending, arbiter.Suspended, arbiter.Resuming, arbiter.Stuck}

// recordSuspensionsLocked records the suspensions that have changed since its last call. It commits all new records before it frees the
// old records of the same jobs. If the daemon is killed in between, a job has two records, and the next daemon uses the one with the
// higher serial number. If a new record cannot be written, the job has no record any more.
func (d *Daemon) recordSuspensionsLocked() {
	changed := d.arb.Suspensions()
	var replaced []int
	for i := range changed {
		s := &changed[i]
		if old, had := d.suspensions.rows[s.Job]; had {
			replaced = append(replaced, old)
			delete(d.suspensions.rows, s.Job)
		}
		if s.Ended {
			continue
		}
		faults.At("suspension.recording")
		if err := d.recordSuspensionLocked(s); err != nil {
			d.log.Error("the suspension of a job cannot be recorded: if the daemon is started again, the job is not asked to take its memory again", "job", s.Job, "err", err)
		}
		faults.At("suspension.recorded")
	}
	for _, old := range replaced {
		d.file.Suspensions.Free(old)
	}
}

// recordSuspensionLocked writes a new record of a suspension, and commits it.
func (d *Daemon) recordSuspensionLocked(s *arbiter.Suspension) error {
	i, r, err := d.file.Suspensions.New()
	if err != nil {
		return err
	}
	d.suspensions.serial++
	r.Serial, r.Job, r.State = d.suspensions.serial, uint64(s.Job), uint32(slices.Index(residences, s.State))
	key, err := hex.DecodeString(s.Key)
	copy(r.Key[:], key)
	r.Failures = uint32(s.Failures)
	r.Asked, r.Resumed, r.NotUntil = d.recordedTime(s.Asked), d.recordedTime(s.Resumed), d.recordedTime(s.NotUntil)
	if s.How == rules.EvictByUnit {
		r.Flags |= statefile.SuspendedByUnit
	}
	if s.Answered {
		r.Flags |= statefile.SuspendAnswered
	}
	if s.Return != (arbiter.Place{}) {
		r.Arrival, r.Since = s.Return.Arrival, d.recordedTime(s.Return.Since)
	}
	for _, on := range s.Had[:min(len(s.Had), len(r.On))] {
		at := d.recordedDevices([]int{on.Device})
		if len(at) == 0 {
			continue
		}
		r.On[r.Devices] = statefile.SuspendedOn{UUID: at[0].UUID, Index: at[0].Index, Contexts: uint32(on.Contexts), Bytes: uint64(on.Bytes), Overhead: uint64(on.Overhead)}
		r.Devices++
	}
	if err == nil {
		err = setFacts(r, s)
	}
	if err != nil {
		d.file.Suspensions.Free(i)
		return err
	}
	d.file.Suspensions.Commit(i)
	d.suspensions.rows[s.Job] = i
	return nil
}

// setFacts writes the unit of a suspended job and the facts of its process to the record. If the unit was stopped, the job has no
// process, and the next daemon chooses its rule by these facts. If they are too long, it writes less of the command line.
func setFacts(r *statefile.Suspension, s *arbiter.Suspension) error {
	if !r.SetUnit(s.Unit) {
		return fmt.Errorf("the name of its unit is too long: %s", s.Unit)
	}
	p := s.Process
	p.Visible = nil
	for {
		facts, err := json.Marshal(p)
		switch {
		case err != nil:
			return err
		case r.SetFacts(facts):
			return nil
		case p.Command == "":
			return fmt.Errorf("the path of its program, its cgroup and its groups have %d bytes together, which is too long", len(facts))
		}
		p.Command = p.Command[:len(p.Command)/2]
	}
}

// recordedTime converts a time for a record: to the machine's uptime at that time, in nanoseconds; 0: the zero time.
func (d *Daemon) recordedTime(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(1, int64(d.uptime()+t.Sub(d.now())))
}
