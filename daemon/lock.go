package daemon

// This file has the daemon's one lock. The files before this one in doc.go take no lock: their functions whose names
// end in Locked are called with the lock held. unlock applies the decisions that the arbiter has made meanwhile.

import (
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/ipc"
)

// lock acquires the daemon's lock.
func (d *Daemon) lock() { d.mutex.Lock() }

// takeLock acquires the daemon's lock to apply the client's last request, and records in the file of failures that
// the request is being applied. Daemon.unlock releases the lock.
func (cl *client) takeLock() {
	d := cl.d
	d.lock()
	d.request.Store(uint32(cl.request))
	d.applyLocked(startedOf(cl.conn.Peer()))
}

// unlock releases the lock, after it has processed what the arbiter decided meanwhile. Events go to the log and the
// history. Replies go into the queues of their clients' connections under the lock, and are sent after it.
//
// If the function that defers unlock has panicked, the daemon's data may be broken. unlock then keeps the lock and
// restarts the daemon.
func (d *Daemon) unlock() {
	if cause := recover(); cause != nil {
		d.restartAfterPanic(cause, d.applying(), ipc.Type(d.request.Load()))
	}
	for again := true; again; { // applying a decision may cause others
		again = false
		for _, decision := range d.arb.Decisions() {
			again = true
			d.decidedLocked(decision)
		}
	}
	d.recordSuspensionsLocked() // before the errands begin
	if errands := d.arb.Errands(); len(errands) > 0 {
		d.suspensions.errands = append(d.suspensions.errands, errands...)
		signal(d.suspensions.wake)
	}
	if decided := d.arb.Events(); len(decided) > 0 {
		d.history.Note(decided)
	}
	if changes := d.arb.ContextChanges(); changes != d.driver.contexts {
		d.driver.contexts = changes
		signal(d.driver.wake)
	}
	d.arb.MeasurePressure(d.now())
	if d.arb.MeasureUsage(d.now()) && d.feed.rests.Load() {
		signal(d.feed.look)
	}
	if d.arb.HasPastJobs() {
		signal(d.feed.wake)
	}
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

// decidedLocked puts the notice or the reply for a decision into the queue of the client's connection. If the ticket
// is not parked, the client is absent (queue.go), or the reply was sent.
func (d *Daemon) decidedLocked(decision arbiter.Result) {
	p := d.queue.parked[decision.Ticket]
	switch {
	case d.stopping():
		return
	case p == nil:
		if decision.Notice == nil {
			d.dropAbsentLocked(decision.Ticket)
		}
		return
	}
	if decision.Notice != nil {
		p.noticeLocked(p.waitingReply(*decision.Notice))
		return
	}
	delete(d.queue.parked, decision.Ticket)
	got, send := p.decide(decision)
	p.cl.noteReceiptLocked(got)
	p.replyLocked(send)
}

// replyLocked puts the reply of a parked request into the queue. After it is sent, the record of the request is
// freed. If sending fails, the grant is taken back.
func (p *parked) replyLocked(send func() error) {
	p.over.Store(true)
	p.cl.putLocked(func() {
		err := send()
		d := p.cl.d
		d.lock()
		defer d.unlock()
		if d.stopping() {
			return // the client reports what it holds when it resumes
		}
		d.dropPlaceLocked(p)
		if err != nil {
			p.cl.takeBackLocked()
		}
	})
}

// register stores a part that was started, by calling note. errStopped: Stop has been called already and does not
// know the part, so that the caller must end it.
func (d *Daemon) register(note func()) error {
	d.lock()
	defer d.unlock()
	if d.stopping() {
		return errStopped
	}
	note()
	return nil
}
