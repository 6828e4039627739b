package arbiter

import (
	"slices"
	"time"
)

// This file finds users, forgets those who have had no job for longest, and counts what comes of their requests. people.go has the counts.

// person is who has the user number, known from now on where he was not.
func (a *Arbiter) person(uid uint32, name string) *person {
	p := a.people.of[uid]
	if p == nil {
		p = &person{uid: uid}
		a.people.of[uid] = p
		a.idles(p)
	}
	if name != "" {
		p.name = name
	}
	return p
}

// idles is for a user who has no job, or none any more: of too many of those the one that had none for longest is forgotten.
func (a *Arbiter) idles(p *person) {
	idle := append(a.people.idle, p)
	if len(idle) > maxIdlePeople {
		delete(a.people.of, idle[0].uid)
		idle = slices.Delete(idle, 0, 1)
	}
	a.people.idle = idle
}

// joins is for a job that is new: whose it is.
func (a *Arbiter) joins(j *job) {
	p := a.person(j.request.Process.UID, j.request.Process.User)
	if p.jobs == 0 {
		a.people.idle = slices.DeleteFunc(a.people.idle, func(x *person) bool { return x == p })
	}
	p.jobs++
	j.person = p
}

// leaves is for a job that is no more.
func (a *Arbiter) leaves(j *job) {
	if j.person.jobs--; j.person.jobs == 0 {
		a.idles(j.person)
	}
}

// countWait counts a request of a user's that waited, and what became of it.
func (a *Arbiter) countWait(p *person, answer *Result, waited time.Duration) {
	of := answer.outcome()
	a.waits.count(of, waited)
	p.waits.count(of, waited)
}

// countRefusal counts a request of a user's that was refused.
func (a *Arbiter) countRefusal(p *person, why Reason) {
	a.refusals[why]++
	p.refusals[why]++
}

// count adds by to one of some counts, and deletes the entry when the count is 0.
func count[K comparable](counts map[K]int, of K, by int) {
	if counts[of] += by; counts[of] <= 0 {
		delete(counts, of)
	}
}
