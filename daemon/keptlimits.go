package daemon

// This file writes the arbiter's table of live limits to the state file and reads it back, so that live limits
// survive a restart of the daemon. setlimit.go changes limits; folders.go ends limits of cgroups whose folders are
// gone.

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/faults"
	"github.com/gpuarb/gpuarb/internal/statefile"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/shim"
)

// noProcessStart is the start time in records of limits of users and cgroups. An older daemon takes such a record for
// the limit of a process. It never applies the limit, because no process has this start time.
const noProcessStart = ^uint64(0)

// ofBinding is the value of Limit.Target in a second record, which each live limit of a cgroup's job has. Limit.Start of that record is the
// key of the job's token. A daemon of a version that does not know such jobs may run in between. When no program of the job is left, that
// daemon drops the job and the first records of its limits. It keeps the second records, because it does not know their target. The next
// daemon makes the job again (recoverbindings.go), and takes its limits from the second records.
const ofBinding = 64

// bindingKey returns the key of a job's token in records with the target ofBinding. It has the highest bit set, so that it is not the start
// time of a process.
func bindingKey(token ipc.Token) uint64 { return binary.LittleEndian.Uint64(token[:]) | 1<<63 }

// Values of Limit.Privileged in the state file.
const (
	limitForces = 1 // a privileged user set the limit, which may exceed the rules
	limitLowers = 2 // the limit was read from a client's page, and counts only if it lowers
)

// recordForLocked returns a record for a row of an owner, without the row's value.
func (d *Daemon) recordForLocked(of rules.Owner, row rules.Row) statefile.Limit {
	r := statefile.Limit{Target: uint32(of.Kind), ID: of.ID, Start: of.Start, Device: int32(row.Device), UID: row.UID}
	switch of.Kind {
	case rules.OfDevice:
		r.ID = 0
	case rules.OfUser:
		r.Start = noProcessStart
	case rules.OfCgroup:
		r.ID, r.Start = d.cgroupIDLocked(of.Path), noProcessStart
	}
	switch {
	case row.Lowers:
		r.Privileged = limitLowers
	case !row.Own:
		r.Privileged = limitForces
	}
	return r
}

// ownerOfLocked returns the owner of the limits in a record.
func (d *Daemon) ownerOfLocked(r *statefile.Limit) rules.Owner {
	of := rules.Owner{Kind: rules.Kind(r.Target), ID: r.ID, Start: r.Start}
	switch of.Kind {
	case ofBinding:
		of.Kind, of.Start = rules.OfJob, 0
	case rules.OfDevice:
		of.ID = uint64(r.Device)
	case rules.OfUser:
		of.Start = 0
	case rules.OfCgroup:
		of = rules.Owner{Kind: of.Kind, Path: d.cgroupLocked(r.ID)}
	}
	return of
}

// setBits are the bits of a record's Set, which say which limits the record has.
var setBits = map[rules.File]uint32{rules.MemoryMax: ipc.SetMax, rules.MemoryMin: ipc.SetMin, rules.StreamsMax: ipc.SetStreams, rules.SlotsMax: ipc.SetSlots}

// overrides reports whether a row for one device overrides an earlier row that the owner set for every device. Only
// for such a pair does the order in the table matter.
func overrides(row rules.Row, earlier []rules.Row) bool {
	return !row.Own && row.Device != rules.AllDevices && slices.ContainsFunc(earlier, func(r rules.Row) bool {
		return r.Own && r.Device == rules.AllDevices && r.File == row.File
	})
}

// setRow writes the value of a row into a record.
func setRow(r *statefile.Limit, row rules.Row) {
	count := uint32(row.Value.Bytes)
	r.Set |= setBits[row.File]
	switch row.File {
	case rules.MemoryMax:
		r.Max, r.MaxPerMille = shim.WireSize(row.Value)
	case rules.MemoryMin:
		r.Min, r.MinPerMille = shim.WireSize(row.Value)
	case rules.StreamsMax:
		r.Streams = count
	case rules.SlotsMax:
		r.Slots = count
	}
}

// changeIn returns a change with the limits that a request sets.
func changeIn(r *ipc.LimitRequest) (change rules.Change) {
	if r.Set&ipc.SetMax != 0 {
		change.Max = new(shim.SizeOf(r.Max, r.MaxShare))
	}
	if r.Set&ipc.SetMin != 0 {
		change.Min = new(shim.SizeOf(r.Min, r.MinShare))
	}
	if r.Set&ipc.SetStreams != 0 {
		change.Streams = new(int(r.Streams))
	}
	if r.Set&ipc.SetSlots != 0 {
		change.Slots = new(int(r.Slots))
	}
	return change
}

// limitRows returns the rows of the table that a record represents.
func limitRows(r *statefile.Limit) []rules.Row {
	request := ipc.LimitRequest{Set: r.Set, Max: r.Max, MaxShare: r.MaxPerMille, Min: r.Min, MinShare: r.MinPerMille,
		Streams: min(r.Streams, math.MaxInt32), Slots: min(r.Slots, math.MaxInt32)}
	change := changeIn(&request)
	change.Device, change.UID, change.Lowers = max(int(r.Device), rules.AllDevices), r.UID, r.Privileged == limitLowers
	rows := change.Rows()
	for i := range rows {
		rows[i].Own = r.Privileged != limitForces && rules.Kind(r.Target) != rules.OfDevice
	}
	return rows
}

// roomForLimitLocked returns an error if a change needs another record and the user may have no more. It is called
// before the change. Changes of a device's limits are always made: if the file has no room, the log says so.
func (d *Daemon) roomForLimitLocked(of rules.Owner, change rules.Change) error {
	rows := d.arb.Limits(of)
	isNew := func(next rules.Row) bool {
		return !slices.ContainsFunc(rows, func(r rules.Row) bool { return r.File == next.File && r.Device == next.Device })
	}
	if of.Kind == rules.OfDevice || !slices.ContainsFunc(change.Rows(), isNew) {
		return nil
	}
	return d.kept.count.full(0, change.UID, change.Privileged)
}

// keepLimitsLocked makes an owner's records equal to the owner's rows in the arbiter's table. Each device gets one
// record of the rows that the owner set, and one of the rows that a privileged user set.
//
// It never changes a live record: a daemon that dies meanwhile would leave half of the old limit and half of the new
// one. It writes new records before it frees old ones. If the daemon dies in between, both remain, and
// recoverLimitsLocked uses the record with more limits. If the table is full, it frees an old record first: a crash
// in between loses that limit.
func (d *Daemon) keepLimitsLocked(of rules.Owner) {
	var want []statefile.Limit
	rows := d.arb.Limits(of)
	for n, row := range rows {
		r := d.recordForLocked(of, row)
		at := slices.IndexFunc(want, func(x statefile.Limit) bool {
			return x.Device == r.Device && (x.Privileged == limitForces) == (r.Privileged == limitForces)
		})
		if at < 0 {
			at = len(want)
			want = append(want, r)
		}
		want[at].UID, want[at].Privileged = r.UID, r.Privileged
		setRow(&want[at], row)
		if overrides(row, rows[:n]) {
			want[at].Set |= setBits[row.File] << statefile.LimitOverrides
		}
	}
	if j := d.jobByID[arbiter.JobID(of.ID)]; of.Kind == rules.OfJob && j != nil && j.bound != nil {
		for _, r := range slices.Clone(want) {
			r.Target, r.Start = ofBinding, bindingKey(j.token)
			want = append(want, r)
		}
	}
	left := slices.Clone(d.kept.of[of])
	want = slices.DeleteFunc(want, func(next statefile.Limit) (kept bool) {
		at := slices.IndexFunc(left, func(i int) bool {
			is := *d.file.Limits.At(i)
			is.Live = 0
			return is == next
		})
		if kept = at >= 0; kept {
			left = slices.Delete(left, at, at+1)
		}
		return kept
	})
	for _, next := range want {
		i, row, err := d.file.Limits.New()
		if err != nil && len(left) > 0 { // the table is full
			d.freeLimitLocked(left[0])
			left = left[1:]
			i, row, err = d.file.Limits.New()
		}
		if err != nil {
			d.log.Warn("a changed limit will not outlive this daemon", "err", err)
			continue
		}
		*row = next
		faults.At("limit.changed")
		d.file.Limits.Commit(i)
		d.indexLimitLocked(i)
	}
	faults.At("limit.kept")
	for _, i := range left {
		d.freeLimitLocked(i)
	}
	d.dropCgroupLocked(of)
}

// indexLimitLocked adds a record to the index.
func (d *Daemon) indexLimitLocked(i int) {
	r := d.file.Limits.At(i)
	of := d.ownerOfLocked(r)
	d.kept.of[of] = append(d.kept.of[of], i)
	d.kept.count.add(0, r.UID)
}

// freeLimitLocked frees a record and removes it from the index.
func (d *Daemon) freeLimitLocked(i int) {
	r := d.file.Limits.At(i)
	of := d.ownerOfLocked(r)
	d.kept.count.drop(0, r.UID)
	if left := slices.DeleteFunc(d.kept.of[of], func(x int) bool { return x == i }); len(left) > 0 {
		d.kept.of[of] = left
	} else {
		delete(d.kept.of, of)
	}
	d.file.Limits.Free(i)
}

// dropLimitsLocked removes all live limits of an owner from the arbiter's table and from the state file.
func (d *Daemon) dropLimitsLocked(of rules.Owner) {
	d.arb.DropLimits(d.now(), of)
	d.keepLimitsLocked(of)
}

// dropRuleLimitsLocked frees the records of rules' live limits that the arbiter dropped when the configuration was
// reloaded.
func (d *Daemon) dropRuleLimitsLocked() {
	for of := range d.kept.of {
		if of.Kind == rules.OfRule {
			d.keepLimitsLocked(of)
		}
	}
}

// recoverLimitsLocked fills the arbiter's table with the limits that the last daemon recorded. It must be called
// before jobs and sessions are recovered, so that they begin with their limits. It frees the records of rules that
// the configuration no longer has or has changed, and of cgroups whose path is not known.
func (d *Daemon) recoverLimitsLocked() {
	d.recoverCgroupsLocked()
	all := map[rules.Owner][]*statefile.Limit{}
	d.file.Limits.Each(func(i int, r *statefile.Limit) {
		if r.Target == ofBinding {
			return // recoverBindingLimitsLocked recovers this record with its job
		}
		of := d.ownerOfLocked(r)
		now, err := d.arb.LimitOwner(of)
		if of.Kind == rules.OfRule && (err != nil || now != of) || of.Kind == rules.OfCgroup && of.Path == "" {
			d.file.Limits.Free(i)
			return
		}
		d.indexLimitLocked(i)
		all[of] = append(all[of], r)
	})
	for of, records := range all {
		name := ""
		if of.Kind == rules.OfUser {
			name = d.inv.UserName(uint32(of.ID))
		}
		d.arb.RestoreLimits(of, name, rowsOf(of, records))
	}
}

// recoverBindingLimitsLocked recovers the second records of the limits of a cgroup's job. r is the job's record. The ID in it may be new,
// and is then written to the second records. The limits in the second records apply only if the first records are gone, because a daemon of
// an earlier version has dropped them with the job.
func (d *Daemon) recoverBindingLimitsLocked(r *statefile.Job) {
	of := rules.Owner{Kind: rules.OfJob, ID: r.ID}
	var records []*statefile.Limit
	d.file.Limits.Each(func(i int, limit *statefile.Limit) {
		if limit.Target == ofBinding && limit.Start == bindingKey(r.Token) {
			limit.ID = r.ID
			records = append(records, limit)
			d.indexLimitLocked(i)
		}
	})
	if len(d.arb.Limits(of)) == 0 {
		d.arb.RestoreLimits(of, "", rowsOf(of, records))
	}
}

// dropLostBindingLimitsLocked frees the second records that recoverBindingLimitsLocked has not recovered: their job is closed or is not
// recovered.
func (d *Daemon) dropLostBindingLimitsLocked() {
	d.file.Limits.Each(func(i int, r *statefile.Limit) {
		if r.Target == ofBinding && !slices.Contains(d.kept.of[d.ownerOfLocked(r)], i) {
			d.file.Limits.Free(i)
		}
	})
}

// rowsOf returns the rows of an owner's records, in an order as in inOrder. It leaves out limits that such an owner cannot have.
func rowsOf(of rules.Owner, records []*statefile.Limit) []rules.Row {
	return slices.DeleteFunc(inOrder(records), func(r rules.Row) bool { return !of.Has(r.File) })
}

// inOrder returns the rows of an owner's records in an order with the same effect as the order in which they were
// set.
func inOrder(records []*statefile.Limit) (rows []rules.Row) {
	type ranked struct {
		rules.Row
		rank int
	}
	var all []ranked
	for _, r := range records {
		for _, row := range limitRows(r) {
			all = append(all, ranked{row, rankOf(r, row.File)})
		}
	}
	slices.SortStableFunc(all, func(x, y ranked) int { return x.rank - y.rank })
	for _, r := range all {
		rows = append(rows, r.Row)
	}
	return rows
}

// rankOf returns the rank of a limit among the records of one owner. Limits are restored in order of rank:
//
//   - limits of privileged users before the owner's own;
//   - limits for all devices before limits for one device;
//   - of two records for one device, the record with more limits last;
//   - a limit for one device that overrides the owner's own limit for all devices directly after that limit.
func rankOf(r *statefile.Limit, file rules.File) int {
	rank := bits.OnesCount32(r.Set & (1<<statefile.LimitOverrides - 1))
	if r.Device >= 0 {
		rank += 32
	}
	if r.Privileged != limitForces {
		rank += 64
	}
	if r.Set>>statefile.LimitOverrides&setBits[file] != 0 {
		rank += 48
	}
	return rank
}

// dropOrphanLimitsLocked drops the limits of jobs and processes that were not recovered, and incomplete records of a
// daemon that died while it wrote them.
func (d *Daemon) dropOrphanLimitsLocked() {
	for of := range d.kept.of {
		_, err := d.arb.LimitOwner(of)
		if err != nil && (of.Kind == rules.OfJob || of.Kind == rules.OfProcess) {
			d.dropLimitsLocked(of)
		} else {
			d.keepLimitsLocked(of) // the last daemon may have died before it freed the old record
		}
	}
	for id := range d.kept.paths { // the last daemon may have died between the path and the limit
		d.dropCgroupLocked(rules.Owner{Kind: rules.OfCgroup, Path: d.cgroupLocked(id)})
	}
}
