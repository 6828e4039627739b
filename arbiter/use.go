package arbiter

import "time"

// This file has the use of leases: since when a process has done nothing with its device, and how busy it keeps the device's processors.
// reading.go notes both for each reading of a device, and snapshot.go notes calls when a snapshot is made. snapshotrows.go shows them.

// noteCalls notes whether the client has made a call since the last noteCalls. The mark of a call has no time, so the call counts as made
// now. A client of an earlier library shows its calls only by a change of its used bytes.
func (l *lease) noteCalls(now time.Time) {
	if !l.session.alive() || l.lost {
		return
	}
	if l.word.Called() || l.noted != notNoted && l.noted != l.lastUsed {
		l.touched = now
	}
	l.noted = l.lastUsed
}

// percents has all values of utilisation. Leases point at its elements, so that noting one allocates nothing.
var percents = func() (all [101]int) {
	for i := range all {
		all[i] = i
	}
	return all
}()

// noteUtilisation notes how busy the process of a lease keeps its device. util has percentages by PID; nil: the device does not tell.
func (l *lease) noteUtilisation(now time.Time, util map[int]int) {
	if l.util = nil; util == nil || !l.session.alive() {
		return
	}
	percent := min(max(0, util[l.session.process.PID]), 100)
	if l.util = &percents[percent]; percent > 0 {
		l.touched = now
	}
}

// unused returns for how long a lease's process has made no call for its device, and has not kept it busy. 0: one of its requests waits.
func (l *lease) unused(now time.Time) time.Duration {
	if l.waits > 0 {
		return 0
	}
	return max(0, now.Sub(l.touched))
}
