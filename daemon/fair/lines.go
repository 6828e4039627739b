package fair

import "time"

// What is decided on requests is told: in the log, in the event history, in the journal. A program can be refused
// a million times a second, so that each of these takes so many lines of one user in a period; the rest is counted.

// Lines counts the lines of each user.
type Lines struct {
	Most int           // lines in a period
	Per  time.Duration // how long that is
	of   map[uint32]*lineCount
}

// Logged is what the log, and the journal, take of a user.
func Logged() Lines { return Lines{Most: 60, Per: time.Minute} }

type lineCount struct {
	since   time.Time
	lines   int
	dropped int
}

// Admit says whether a line about a user's request is taken; dropped is how many were not in
// the period before, when a new one begins.
func (c *Lines) Admit(now time.Time, uid uint32) (ok bool, dropped int) {
	count := c.of[uid]
	if count == nil || now.Sub(count.since) >= c.Per {
		if count != nil {
			dropped = count.dropped
		}
		for other, old := range c.of { // users who ask for nothing are forgotten
			if old.dropped == 0 && now.Sub(old.since) >= c.Per {
				delete(c.of, other)
			}
		}
		if c.of == nil {
			c.of = map[uint32]*lineCount{}
		}
		count = &lineCount{since: now}
		c.of[uid] = count
	}
	if count.lines == c.Most {
		count.dropped++
		return false, dropped
	}
	count.lines++
	return true, dropped
}
