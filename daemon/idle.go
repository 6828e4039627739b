package daemon

import (
	"sync"
	"time"
)

// This file decides how often devices are read. A GPU that no program uses may be put to sleep by the kernel, and each reading wakes
// it, which runs down a laptop's battery. So the readers (reader.go) read seldom while the daemon has nothing to do, and
// do not read a device that is asleep.

const (
	// readIdle is the time between two readings of a device while the daemon is idle.
	readIdle = 10 * time.Second
	// watchedFor is how long the daemon is not idle after a look at its state.
	watchedFor = 5 * time.Second
	// followedFor is the longest time between two looks of the process that serves the page while a browser shows the
	// page. Without one, that process looks every five seconds, for its history.
	followedFor = 3 * time.Second
)

// looks notes when the daemon's state was last looked at from outside.
type looks struct {
	mu      sync.Mutex
	watched time.Time // last look of a user; zero: there was none
	page    time.Time // last look of the process that serves the page; zero: there was none
}

// watch notes a look of a user. It reports whether the look is the first one after a pause.
func (l *looks) watch(now time.Time) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = l.watched.IsZero() || now.Sub(l.watched) > watchedFor
	l.watched = now
	return first
}

// follow notes a look of the process that serves the page. It reports whether the last one was less than followedFor ago: then a
// browser shows the page.
func (l *looks) follow(now time.Time) (followed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	followed = !l.page.IsZero() && now.Sub(l.page) < followedFor
	l.page = now
	return followed
}

// lately reports whether a user has looked at the state within watchedFor.
func (l *looks) lately(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.watched.IsZero() && now.Sub(l.watched) <= watchedFor
}

// looked notes a look at the state by a user: with a command, a file or the page. After a pause it wakes the readers.
func (d *Daemon) looked() {
	if d.looks.watch(d.now()) {
		d.wakeReaders()
	}
}

// looked notes a look of a client. A look of the process that serves the page counts only while a browser shows the page.
func (cl *client) looked() {
	if !cl.d.page.Is(cl.conn.Peer().PID) || cl.d.looks.follow(cl.d.now()) {
		cl.d.looked()
	}
}

// idle reports whether there is no session and no job, and no user has looked at the state for watchedFor.
func (d *Daemon) idle() bool {
	if d.looks.lately(d.now()) {
		return false
	}
	d.lock()
	defer d.unlock()
	return len(d.sessions)+len(d.jobs) == 0
}

// wakeReaders makes each reader read its device now, since the daemon is not idle any more.
func (d *Daemon) wakeReaders() {
	for _, r := range d.readers() {
		signal(r.wake)
	}
}

// every returns the time between two readings of the device. A device that is lost or does not answer is always read often, to
// see when that is over; so is one that a request waits for.
func (r *reader) every() time.Duration {
	if !r.lost && r.silent(r.d.now()) == 0 && !r.awaited() && r.d.idle() {
		return readIdle
	}
	return readEvery
}

// rests reports whether the daemon is idle and the device asleep, so that a reading would wake it for no user.
func (r *reader) rests() bool { return r.every() == readIdle && r.d.inv.Suspended(r.index) }
