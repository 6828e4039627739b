package daemon

import (
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/procfacts"
)

// lock takes the daemon's one lock.
func (d *Daemon) lock() { d.mutex.Lock() }

// applyLocked writes to the file of failures that a request of a process, or its recovery, is applied until the lock is given back.
func (d *Daemon) applyLocked(of procfacts.Started) {
	if d.failures != nil {
		d.failures.Apply(uint32(of.PID), of.StartTicks)
	}
}

// applyLocked writes to the file of failures that the client's request is applied. It is called before that.
func (cl *client) applyLocked() {
	cl.d.request.Store(uint32(cl.request))
	cl.d.applyLocked(startedOf(cl.conn.Peer()))
}

// applying returns the process whose request is applied; the zero value: none.
func (d *Daemon) applying() (of procfacts.Started) {
	if d.failures == nil {
		return of
	}
	if pid, start := d.failures.Applying(); pid != 0 {
		of = procfacts.Started{PID: int(pid), StartTicks: start}
	}
	return of
}

// unlock gives the lock back, and hands on what the arbiter decided meanwhile: events go to the log and the history. Decisions are carried
// out and put into the queues of their clients' connections under the lock, and sent after it.
//
// If the function that defers it has panicked, the daemon's data may be broken: unlock keeps the lock, and starts the daemon again.
func (d *Daemon) unlock() {
	if cause := recover(); cause != nil {
		d.broken(cause, d.applying(), ipc.Type(d.request.Load()))
	}
	for again := true; again; { // carrying a decision out may bring others
		again = false
		for _, decision := range d.arb.Decisions() {
			again = true
			d.decidedLocked(decision)
		}
	}
	if decided := d.arb.Events(); len(decided) > 0 {
		d.history.Note(decided)
	}
	d.arb.MeasurePressure(d.now())
	if due := d.arb.Due(); !due.IsZero() && (d.queue.due.IsZero() || due.Before(d.queue.due)) {
		d.queue.due = due
		signal(d.queue.sooner)
	}
	if d.failures != nil {
		d.failures.Applied()
	}
	touched := d.queue.touched
	d.queue.touched = nil
	d.mutex.Unlock()
	for _, cl := range touched {
		cl.out.flush()
	}
}
