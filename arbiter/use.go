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

// lastUse returns when a lease's process was last seen to make a call for the device or to keep it busy.
func (l *lease) lastUse() time.Time {
	if l.use.seen.After(l.touched) {
		return l.use.seen
	}
	return l.touched
}

// unused returns the time since lastUse. 0: a request of the lease waits.
func (l *lease) unused(now time.Time) time.Duration {
	if l.waits > 0 {
		return 0
	}
	return max(0, now.Sub(l.lastUse()))
}
