package fair

import "time"

// This file limits how many decisions on one user's requests are reported: in the log, the event history and the
// journal. Package history and daemon/setlimit.go use it. A program can be refused a million times a second. Each
// report therefore takes a limited number of lines per user and period, and counts the rest.

// Quota admits a limited number of items, such as lines, for each user in a period.
type Quota struct {
	Most int           // items of a user in a period
	Per  time.Duration // length of a period
	of   map[uint32]*period
}

// Logged returns the quota of a user's lines in the log and in the journal.
func Logged() Quota { return Quota{Most: 60, Per: time.Minute} }

// period is the latest period of a user.
type period struct {
	since    time.Time
	admitted int
	dropped  int
}

// Admit reports whether one more item of a user is admitted. When a new period begins, dropped is the number of items
// that were refused in the last one.
func (q *Quota) Admit(now time.Time, uid uint32) (ok bool, dropped int) {
	p := q.of[uid]
	if p == nil || now.Sub(p.since) >= q.Per {
		if p != nil {
			dropped = p.dropped
		}
		for other, old := range q.of { // forget users without recent items
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
