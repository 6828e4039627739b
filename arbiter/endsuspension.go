package arbiter

import "time"

// This file ends the suspension of a job that ends, and withdraws the request with which a job returns. returns.go makes that request.

// withdrawReturn removes the request with which a job returns from the queue, if such a request waits.
func (a *Arbiter) withdrawReturn(now time.Time, j *job) {
	if t := a.returning(j); t != nil {
		a.dequeue(now, t)
		t.done = true
		a.changed()
	}
}

// forgetSuspension withdraws the return of a job that ends, and deletes its suspension, also from the record of the daemon.
func (a *Arbiter) forgetSuspension(now time.Time, j *job) {
	if j.suspension == nil {
		return
	}
	a.withdrawReturn(now, j)
	a.suspensionChanged(j)
	j.suspension = nil
	a.suspensions--
}
