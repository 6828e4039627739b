package arbiter

import "time"

// This file ends the suspension of a job that ends, and withdraws the request with which a job returns. returns.go makes that request.

// withdrawReturn takes the waiting request with which a job returns out of the queue, if there is one.
func (a *Arbiter) withdrawReturn(now time.Time, j *job) {
	if t := a.returning(j); t != nil {
		a.dequeue(now, t)
		t.done = true
		a.changed()
	}
}

// forgetSuspension ends the suspension of a job that ends.
func (a *Arbiter) forgetSuspension(now time.Time, j *job) {
	if j.suspension == nil {
		return
	}
	a.withdrawReturn(now, j)
	a.suspensionChanged(j)
	j.suspension = nil
	a.suspensions--
}
