package fair

import "time"

// What is decided on requests is logged at INFO: who was refused, waits, was served, left the
// queue. A program can be refused a million times a second, so that of one user so many lines
// are logged in a minute; the rest is counted, and logged at DEBUG.
const linesPerMinute = 60

// Lines counts the lines of each user. Make one with make.
type Lines map[uint32]*lineCount

type lineCount struct {
	since   time.Time
	lines   int
	dropped int
}

// Admit says whether a line about a user's request is logged; dropped is how many were not in
// the period before, when a new one begins.
func (c Lines) Admit(now time.Time, uid uint32) (ok bool, dropped int) {
	count := c[uid]
	if count == nil || now.Sub(count.since) >= time.Minute {
		if count != nil {
			dropped = count.dropped
		}
		for other, old := range c { // users who ask for nothing are forgotten
			if old.dropped == 0 && now.Sub(old.since) >= time.Minute {
				delete(c, other)
			}
		}
		count = &lineCount{since: now}
		c[uid] = count
	}
	if count.lines == linesPerMinute {
		count.dropped++
		return false, dropped
	}
	count.lines++
	return true, dropped
}
