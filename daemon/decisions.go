package daemon

import "time"

// What is decided on requests is logged at INFO: who was refused, waits, was served, left the
// queue. A program can be refused a million times a second, so that of one user so many lines
// are logged in a minute; the rest is counted, and logged at DEBUG.
const (
	decisionLines  = 60
	decisionPeriod = time.Minute
)

// decisions counts the lines of each user.
type decisions map[uint32]*decisionCount

type decisionCount struct {
	since   time.Time
	lines   int
	dropped int
}

// admit says whether a line about a user's request is logged; dropped is how many were not in
// the period before, when a new one begins.
func (c decisions) admit(now time.Time, uid uint32) (ok bool, dropped int) {
	count := c[uid]
	if count == nil || now.Sub(count.since) >= decisionPeriod {
		if count != nil {
			dropped = count.dropped
		}
		for other, old := range c { // users who ask for nothing are forgotten
			if old.dropped == 0 && now.Sub(old.since) >= decisionPeriod {
				delete(c, other)
			}
		}
		count = &decisionCount{since: now}
		c[uid] = count
	}
	if count.lines == decisionLines {
		count.dropped++
		return false, dropped
	}
	count.lines++
	return true, dropped
}
