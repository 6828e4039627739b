package arbiter

import "time"

// What concerns thousands would have the daemon's lock for long: limits of all jobs that are changed, a device that is
// lost. So it is done in steps, some hundred by each call that looks at those who wait, as these are. It is done in the
// order in which it was begun: who changes his limits all the time keeps nobody else's from being put in force. What a
// step begins comes before all that waits, and so before its next.

// work is something that is done in steps: each call does the next. False: that was the last.
type work func(now time.Time) (more bool)

// later has something done, as soon as a call may.
func (a *Arbiter) later(do func(now time.Time)) {
	a.works = append(a.works, func(now time.Time) bool { do(now); return false })
}

// In the time of one look so many leases are looked through, or requests, or processes of a job, and so many requests that rest
// are woken.
const (
	leasesPerLook   = 8
	ticketsPerLook  = 32
	sessionsPerLook = 64
	wakesPerLook    = 8
)

// inSteps has something done with each of all, in their order: with so many in the time of one look.
func inSteps[T any](a *Arbiter, perLook int, all []T, do func(now time.Time, x T)) {
	if len(all) == 0 {
		return
	}
	a.works = append(a.works, func(now time.Time) bool {
		some(perLook, &all, func(x T) { do(now, x) })
		return len(all) > 0
	})
}

// some has something done with up to so many of those that are left, and returns how many more there may be.
func some[T any](most int, left *[]T, do func(x T)) int {
	for ; most > 0 && len(*left) > 0; most-- {
		x := (*left)[0]
		*left = (*left)[1:]
		do(x)
	}
	return most
}

// goOn does as many steps as a call may.
func (a *Arbiter) goOn(now time.Time) {
	for len(a.works) > 0 && a.mayLook() {
		waiting := a.works
		a.works = nil // for what the step begins
		if a.spend(1); !waiting[0](now) {
			waiting = waiting[1:]
		}
		if a.works == nil {
			a.works = waiting
		} else {
			a.works = append(a.works, waiting...)
		}
	}
}

// mayLook tells whether a call may do more before it looks at those who wait, for which it keeps a quarter: they come to
// their turn however much changes all the time.
func (a *Arbiter) mayLook() bool { return a.looks > a.looksAtOnce/4 }

// spend counts that a call did as much as so many looks, be it before it comes to those who wait or among them.
func (a *Arbiter) spend(looks int) { a.looks = min(a.looks, max(a.looks-looks, a.looksAtOnce/4)) }
