package fair

import "time"

// What is decided on requests is told: in the log, in the event history, in the journal. A program can be refused
// a million times a second, so that each of these takes so many lines of one user in a period; the rest is counted.

// Quota lets so many things of each user through in a period: lines, say.
type Quota struct {
	Most int           // in a period
	Per  time.Duration // how long that is
	of   map[uint32]*period
}

// Logged is what the log, and the journal, take of a user.
func Logged() Quota { return Quota{Most: 60, Per: time.Minute} }

// period is the latest one of a user.
type period struct {
	since    time.Time
	admitted int
	dropped  int
}

// Admit says whether one more of a user's is let through; dropped is how many were not in
// the period before, when a new one begins.
func (q *Quota) Admit(now time.Time, uid uint32) (ok bool, dropped int) {
	p := q.of[uid]
	if p == nil || now.Sub(p.since) >= q.Per {
		if p != nil {
			dropped = p.dropped
		}
		for other, old := range q.of { // users who ask for nothing are forgotten
			if old.dropped == 0 && now.Sub(old.since) >= q.Per {
				delete(q.of, other)
			}
		}
		if q.of == nil {
			q.of = map[uint32]*period{}
		}
		p = &period{since: now}
		q.of[uid] = p
	}
	if p.admitted == q.Most {
		p.dropped++
		return false, dropped
	}
	p.admitted++
	return true, dropped
}
