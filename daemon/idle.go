package daemon

import (
	"sync"
	"time"
)

// A GPU that nobody uses may sleep, which each look ends: a laptop's runs down its battery. So the readers (reader.go) look
// seldom while the daemon has nothing to do, and not at all at a device that is asleep.

const (
	// readIdle is how often a device is read while nobody uses gpuarb or looks at its state.
	readIdle = 10 * time.Second
	// watchedFor is for how long somebody who looked at the state counts as looking at it.
	watchedFor = 5 * time.Second
	// followedFor is the most between two looks of the page's process while somebody has the page open. Without readers it
	// looks every five seconds, for its history.
	followedFor = 3 * time.Second
)

// audienceOf is who looks at the daemon's state from outside, and when last.
type audienceOf struct {
	mu      sync.Mutex
	watched time.Time // zero: nobody has
	page    time.Time // the page's process
}

// looked notes that somebody looks at the state: by a command, a file or the page.
func (d *Daemon) looked() {
	now := d.now()
	w := &d.audience
	w.mu.Lock()
	first := w.watched.IsZero() || now.Sub(w.watched) > watchedFor
	w.watched = now
	w.mu.Unlock()
	if first {
		d.wakeReaders()
	}
}

// looked notes that a client looks at the state. The page's process does so without readers too.
func (cl *client) looked() {
	d := cl.d
	if !d.page.Is(cl.conn.Peer().PID) {
		d.looked()
		return
	}
	now := d.now()
	w := &d.audience
	w.mu.Lock()
	followed := !w.page.IsZero() && now.Sub(w.page) < followedFor
	w.page = now
	w.mu.Unlock()
	if followed {
		d.looked()
	}
}

// idle reports whether nobody has a session or a job, waits for something or looks at the state.
func (d *Daemon) idle() bool {
	now := d.now()
	d.audience.mu.Lock()
	watched := !d.audience.watched.IsZero() && now.Sub(d.audience.watched) <= watchedFor
	d.audience.mu.Unlock()
	if watched {
		return false
	}
	d.lock()
	defer d.unlock()
	return len(d.sessions)+len(d.jobs) == 0
}

// wakeReaders has each device be read now: somebody has come.
func (d *Daemon) wakeReaders() {
	for _, r := range d.readers() {
		signal(r.wake)
	}
}

// every is how often the reader reads. What is wrong with a device is looked at often: it is to be seen when it is over.
func (r *reader) every() time.Duration {
	if !r.lost && r.silent(r.d.now()) == 0 && r.d.idle() {
		return readIdle
	}
	return readEvery
}

// rests reports whether a look would wake the device for nobody.
func (r *reader) rests() bool { return r.every() == readIdle && r.d.inv.Suspended(r.index) }
