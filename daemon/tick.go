package daemon

// This file calls the arbiter when a deadline comes or a deadlock is suspected. loops.go runs it; lock.go sets the
// time.

import (
	"time"
)

// tickWhenDue calls the arbiter's Tick if it is due. It returns a channel that receives when it must be called again;
// nil: no time is set. The caller also waits for sooner, because the deferred unlock may set an earlier time.
func (d *Daemon) tickWhenDue() <-chan time.Time {
	d.lock()
	defer d.unlock()
	now := d.now()
	if due := d.queue.due; !due.IsZero() && !now.Before(due) {
		d.queue.due = time.Time{}
		d.countThreadsLocked()
		d.searchDeadlockLocked()
		d.arb.Tick(d.now())
		d.queue.due = time.Time{} // unlock sets it again
	}
	if d.queue.due.IsZero() {
		return nil
	}
	return d.after(max(d.queue.due.Sub(now), time.Millisecond))
}

// searchDeadlockLocked starts a search for a deadlock if many requests wait and a search is due. The search runs in
// its own goroutine and without the lock, so that deadlines are kept meanwhile.
func (d *Daemon) searchDeadlockLocked() {
	search := d.arb.Search(d.now())
	if search == nil {
		return
	}
	d.wg.Go(func() {
		defer d.unlock() // if Run panics, the lock is not held: unlock restarts the daemon and does not return
		search.Run()
		d.lock()
		d.arb.Settle(d.now(), search)
	})
}

// countThreadsLocked reports the number of threads of each session with a waiting request to the arbiter, because a
// thread may have ended without a message.
func (d *Daemon) countThreadsLocked() {
	now := d.now()
	waiting := make(map[*session]bool)
	for _, p := range d.queue.parked {
		if p.s != nil && !waiting[p.s] {
			waiting[p.s] = true
			d.threadsLocked(now, p.s)
		}
	}
}
