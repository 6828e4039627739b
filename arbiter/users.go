package arbiter

import (
	"slices"
	"time"
)

// This file finds users, forgets the users without jobs beyond maxIdleUsers, and counts outcomes of requests. usercounts.go has the counts.
// open.go, end.go, decision.go and refuse.go call it.

// userOf returns the user with a user ID. It adds the user if it is not known.
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

// becomesIdle adds a user to the users without jobs. If there are too many, it forgets the one without jobs for longest.
func (a *Arbiter) becomesIdle(p *user) {
	idle := append(a.users.idle, p)
	if len(idle) > maxIdleUsers {
		delete(a.users.byUID, idle[0].uid)
		idle = slices.Delete(idle, 0, 1)
	}
	a.users.idle = idle
}

// countJob counts a new job for its user.
func (a *Arbiter) countJob(j *job) {
	p := a.userOf(j.request.Process.UID, j.request.Process.User)
	if p.jobs == 0 {
		a.users.idle = slices.DeleteFunc(a.users.idle, func(x *user) bool { return x == p })
	}
	p.jobs++
	j.user = p
}

// uncountJob counts for its user that a job has ended.
func (a *Arbiter) uncountJob(j *job) {
	if j.user.jobs--; j.user.jobs == 0 {
		a.becomesIdle(j.user)
	}
}

// countWait counts a user's request that waited, and its outcome.
func (a *Arbiter) countWait(p *user, answer *Result, waited time.Duration) {
	of := answer.outcome()
	a.waits.count(of, waited)
	p.waits.count(of, waited)
}

// countRefusal counts a refused request of a user.
func (a *Arbiter) countRefusal(p *user, why Reason) {
	a.refusals[why]++
	p.refusals[why]++
}

// count adds by to the count of one key, and deletes the key when its count is 0.
func count[K comparable](counts map[K]int, of K, by int) {
	if counts[of] += by; counts[of] <= 0 {
		delete(counts, of)
	}
}
