package arbiter

import "time"

// This file has the use of leases: since when a process has done nothing with its device, and how busy it keeps the device's processors.
// reading.go notes both for each reading of a device, and snapshot.go notes calls when a snapshot is made. snapshotrows.go shows them.

// noteCalls notes whether the client has made a call since the last noteCalls. Calls have no times, so that the present time counts.
func (l *lease) noteCalls(now time.Time) {
	if !l.session.alive() || l.lost {
		return
	}
	if called := l.word.Called(); called || l.lastUsed != l.use.bytes {
		l.use.seen, l.use.bytes = now, l.lastUsed
	}
}

// noteUtilisation notes how busy the process of a lease keeps its device. util has percentages by PID; nil: the device does not tell.
func (l *lease) noteUtilisation(now time.Time, util map[int]int) {
	if l.use.util = nil; util == nil || !l.session.alive() {
		return
	}
	percent := util[l.session.process.PID]
	if l.use.util = &percent; percent > 0 {
		l.use.seen = now
	}
}

// unused returns for how long a lease's process has made no call for the device and has not kept it busy. 0: one of its requests waits.
func (l *lease) unused(now time.Time) time.Duration {
	last := l.touched
	if l.use.seen.After(last) {
		last = l.use.seen
	}
	if l.waits > 0 {
		return 0
	}
	return max(0, now.Sub(last))
}
