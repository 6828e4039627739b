package daemon

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/faults"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/shim"
	"github.com/gpuarb/gpuarb/statefile"
)

// What somebody changed while programs ran comes back after a restart of the daemon:
// each change is kept in the state file, one record for whose limits it is and the
// device, and made again when its job or process has been taken up.

// limitOwner is whose limits are kept.
type limitOwner struct {
	kind  uint32
	id    uint64
	start uint64
}

// ofNobody is what the record of a user's or a cgroup's limits has as the start of a process: so a daemon that
// knows no such records, after a return to an older gpuarb, finds no process for it.
const ofNobody = ^uint64(0)

// target is whose limits a record holds, and on which device.
type target struct {
	limitOwner
	device int32
	own    bool // by the owner, within what somebody privileged may have set beside it
}

// limitLowers in a record's Privileged: it was taken from a client's page, and only lowers.
const limitLowers = 2

func targetOf(r *statefile.Limit) target {
	return target{limitOwner{r.Target, r.ID, r.Start}, r.Device, r.Target != ipc.LimitDevice && r.Privileged != 1}
}

// limitChange is a change of any limit; a device has slots, and nothing else.
type limitChange struct {
	rules.Change
	slots *int

	bind   binding // of a cgroup's limit: when it ends
	folder uint32  // the folder for bind, as statefile.Cgroup.Folder; 0: the cgroup has no folder
}

func (c limitChange) String() string {
	if c.slots != nil {
		return fmt.Sprintf("slots.max=%d", *c.slots)
	}
	return c.Change.String()
}

// keptLimits knows where the records are, so that no change goes through all of them.
type keptLimits struct {
	of    map[limitOwner][]int
	count *counts // by who made the change; a device's are root's

	cgroups map[uint64]int    // records of paths, by their numbers
	numbers map[string]uint64 // numbers of paths, by the paths
	folders map[string]uint32 // by the paths of cgroups: folders with which their limits end
}

// limitAtLocked is the record of a target, or -1.
func (d *Daemon) limitAtLocked(to target) int {
	for _, i := range d.kept.of[to.limitOwner] {
		if targetOf(d.file.Limits.At(i)) == to {
			return i
		}
	}
	return -1
}

// roomForLimitLocked says why one more change could not be kept, or nil. It is asked before the
// change is made, but for a device's: root is told in the log.
func (d *Daemon) roomForLimitLocked(to target, change rules.Change) error {
	if to.kind == ipc.LimitDevice || d.limitAtLocked(to) >= 0 {
		return nil
	}
	return d.kept.count.full(0, change.UID, change.Privileged)
}

// keepLimitLocked writes a change down that was made. A change on every device takes the place
// of those on single ones, and one by somebody privileged that of the owner's.
//
// A record that is in force is not written to: it would be half the one and half the other limit
// where the daemon dies meanwhile. So a new one takes its place, and where both are left
// recoverLimits picks one.
func (d *Daemon) keepLimitLocked(to target, change limitChange) {
	next := statefile.Limit{Target: to.kind, ID: to.id, Start: to.start, Device: to.device}
	old := d.limitAtLocked(to)
	if old >= 0 {
		next = *d.file.Limits.At(old)
		next.Live = 0
	}
	setLimit(&next, change)
	var err error
	if old < 0 {
		err = d.kept.count.full(0, change.UID, change.Privileged)
	}
	at, row := 0, (*statefile.Limit)(nil)
	if err == nil {
		at, row, err = d.file.Limits.New()
	}
	if err != nil {
		d.log.Warn("a changed limit will not outlive this daemon", "err", err)
		return
	}
	*row = next
	d.file.Limits.Commit(at)
	d.knownLimitLocked(at)
	if old >= 0 {
		d.freeLimitLocked(old)
	}
	for _, i := range slices.Clone(d.kept.of[to.limitOwner]) {
		r := d.file.Limits.At(i)
		of := targetOf(r)
		if i != at && (to.device < 0 || of.device == to.device) && (of.own == to.own || !to.own) {
			if r.Set &^= setOf(change); r.Set == 0 {
				d.freeLimitLocked(i)
			}
		}
	}
}

// setLimit writes a change into a record.
func setLimit(r *statefile.Limit, change limitChange) {
	if change.Max != nil {
		r.Max, r.MaxPerMille = shim.WireSize(*change.Max)
	}
	if change.Min != nil {
		r.Min, r.MinPerMille = shim.WireSize(*change.Min)
	}
	if change.Streams != nil {
		r.Streams = uint32(*change.Streams)
	}
	if change.slots != nil {
		r.Slots = uint32(*change.slots)
	}
	faults.At("limit.changed")
	r.UID, r.Privileged = change.UID, 0
	switch {
	case change.Lowers:
		r.Privileged = limitLowers
	case change.Privileged:
		r.Privileged = 1
	}
	r.Set |= setOf(change)
	faults.At("limit.kept")
}

// knownLimitLocked enters a record where it is looked for.
func (d *Daemon) knownLimitLocked(i int) {
	r := d.file.Limits.At(i)
	owner := targetOf(r).limitOwner
	d.kept.of[owner] = append(d.kept.of[owner], i)
	d.kept.count.add(0, r.UID)
}

// freeLimitLocked drops a record.
func (d *Daemon) freeLimitLocked(i int) {
	r := d.file.Limits.At(i)
	owner := targetOf(r).limitOwner
	d.kept.count.drop(0, r.UID)
	if left := slices.DeleteFunc(d.kept.of[owner], func(x int) bool { return x == i }); len(left) > 0 {
		d.kept.of[owner] = left
	} else {
		delete(d.kept.of, owner)
	}
	d.file.Limits.Free(i)
}

// forgetLimitsLocked drops the records of a job or process that is no more.
func (d *Daemon) forgetLimitsLocked(owner limitOwner) {
	for _, i := range slices.Clone(d.kept.of[owner]) {
		d.freeLimitLocked(i)
	}
}

func setOf(change limitChange) (set uint32) {
	for bit, given := range map[uint32]bool{ipc.SetMax: change.Max != nil, ipc.SetMin: change.Min != nil,
		ipc.SetStreams: change.Streams != nil, ipc.SetSlots: change.slots != nil} {
		if given {
			set |= bit
		}
	}
	return set
}

// forgetRuleLimitsLocked drops the records of what rules give, as they say it themselves again.
func (d *Daemon) forgetRuleLimitsLocked() {
	for owner := range d.kept.of {
		if owner.kind == ipc.LimitRule {
			d.forgetLimitsLocked(owner)
		}
	}
}

// limitGoneLocked tells a record of a job or process that is no more, or of a rule that the
// configuration has no longer as it was.
func (d *Daemon) limitGoneLocked(r *statefile.Limit) bool {
	switch r.Target {
	case ipc.LimitJob:
		return d.jobByID[arbiter.JobID(r.ID)] == nil
	case ipc.LimitProcess:
		return len(d.sessionsOfProcessLocked(int(r.ID), r.Start)) == 0
	case ipc.LimitRule:
		rule, ok := d.arb.Rule(r.ID)
		return !ok || rule.Says() != r.Start
	case ipc.LimitCgroup:
		return d.cgroupLocked(r.ID) == ""
	}
	return false
}

// recoverLimitsLocked makes the changes again that the last daemon's clients had made: those of the
// privileged before those of owners, which stay within them, and those on every device first.
func (d *Daemon) recoverLimitsLocked() {
	d.recoverCgroupsLocked()
	d.file.Limits.Each(func(i int, r *statefile.Limit) {
		if d.limitGoneLocked(r) {
			d.file.Limits.Free(i)
			return
		}
		// Of two, the last daemon died as it wrote the second: that sets all that the first does.
		if other := d.limitAtLocked(targetOf(r)); other >= 0 {
			if bits.OnesCount32(d.file.Limits.At(other).Set) >= bits.OnesCount32(r.Set) {
				d.file.Limits.Free(i)
				return
			}
			d.freeLimitLocked(other)
		}
		d.knownLimitLocked(i)
	})
	for id := range d.kept.cgroups {
		d.dropCgroupLocked(id)
	}
	var rows []*statefile.Limit
	d.file.Limits.Each(func(_ int, r *statefile.Limit) { rows = append(rows, r) })
	slices.SortStableFunc(rows, func(x, y *statefile.Limit) int { return rankOf(x) - rankOf(y) })
	for _, r := range rows {
		if err := d.recoverLimitLocked(r); err != nil {
			d.log.Warn("a limit that was changed could not be set again", "err", err)
		}
	}
}

// rankOf is a record's place in the order in which limits are made again.
func rankOf(r *statefile.Limit) (rank int) {
	if targetOf(r).own {
		rank += 2
	}
	if r.Device >= 0 {
		rank++
	}
	return rank
}

func (d *Daemon) recoverLimitLocked(r *statefile.Limit) error {
	set := r.Set
	if r.Target == ipc.LimitDevice {
		set = ipc.SetSlots // whatever a file says that is damaged
	}
	change := changeOf(set, shim.SizeOf(r.Max, r.MaxPerMille), shim.SizeOf(r.Min, r.MinPerMille), int(r.Streams), int(r.Slots))
	change.Device, change.UID, change.Again = int(r.Device), r.UID, true
	change.Privileged, change.Lowers = r.Privileged == 1, r.Privileged == limitLowers
	name := ""
	switch r.Target {
	case ipc.LimitUser:
		name = d.inv.UserName(uint32(r.ID))
	case ipc.LimitCgroup:
		name = d.cgroupLocked(r.ID)
	}
	return d.setLimitsLocked(limitOwner{r.Target, r.ID, r.Start}, name, change)
}
