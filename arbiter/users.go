package arbiter

import (
	"slices"
	"time"
)

// This file finds users, forgets those who have had no job for longest, and counts what comes of their requests. usercounts.go has the counts.

// userOf is who has the user number, known from now on where he was not.
func (a *Arbiter) userOf(uid uint32, name string) *user {
	p := a.users.byUID[uid]
	if p == nil {
		p = &user{uid: uid}
		a.users.byUID[uid] = p
		a.becomesIdle(p)
	}
	if name != "" {
		p.name = name
	}
	return p
}

// becomesIdle is for a user who has no job, or none any more: of too many of those the one that had none for longest is forgotten.
func (a *Arbiter) becomesIdle(p *user) {
	idle := append(a.users.idle, p)
	if len(idle) > maxIdleUsers {
		delete(a.users.byUID, idle[0].uid)
		idle = slices.Delete(idle, 0, 1)
	}
	a.users.idle = idle
}

// countJob is for a job that is new: whose it is.
func (a *Arbiter) countJob(j *job) {
	p := a.userOf(j.request.Process.UID, j.request.Process.User)
	if p.jobs == 0 {
		a.users.idle = slices.DeleteFunc(a.users.idle, func(x *user) bool { return x == p })
	}
	p.jobs++
	j.user = p
}

// uncountJob is for a job that is no more.
func (a *Arbiter) uncountJob(j *job) {
	if j.user.jobs--; j.user.jobs == 0 {
		a.becomesIdle(j.user)
	}
}

// countWait counts a request of a user's that waited, and what became of it.
func (a *Arbiter) countWait(p *user, answer *Result, waited time.Duration) {
	of := answer.outcome()
	a.waits.count(of, waited)
	p.waits.count(of, waited)
}

// countRefusal counts a request of a user's that was refused.
func (a *Arbiter) countRefusal(p *user, why Reason) {
	a.refusals[why]++
	p.refusals[why]++
}

// count adds by to one of some counts, and deletes the entry when the count is 0.
func count[K comparable](counts map[K]int, of K, by int) {
	if counts[of] += by; counts[of] <= 0 {
		delete(counts, of)
	}
}
