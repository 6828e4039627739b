package fair

// This file limits how often each user changes limits. daemon/setlimit.go calls it for requests and for writes into the
// filesystem. turns.go orders all requests.

import (
	"context"
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// ChangesPerSecond is the number of limits that a user may change in a second, by writes into the filesystem or by
// requests, after a burst of as many. Further changes wait. A change holds the daemon's lock while it visits
// everything below the limit, and is recorded and logged.
const ChangesPerSecond = 100

// ChangeCost is the longest time for which one change may hold the daemon's lock. A longer change, which concerns
// thousands of programs, counts as several. One user's changes thus take at most a fifth of the lock's time.
const ChangeCost = time.Second / 5 / ChangesPerSecond

// Changes delays users who change limits too often.
type Changes struct {
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time

	mu    sync.Mutex
	users map[uint32]*rate.Limiter // users who have changed limits lately
}

// Wait returns when a user may change a limit, in the order of the calls. If the context ends first, it returns the
// context's error.
func (t *Changes) Wait(ctx context.Context, uid uint32) error {
	now := t.Now()
	turn := t.limiter(uid, now).ReserveN(now, 1)
	wait := turn.DelayFrom(now)
	if wait == 0 {
		return nil
	}
	select {
	case <-t.After(wait):
		return nil
	case <-ctx.Done():
		turn.CancelAt(t.Now())
		return ctx.Err()
	}
}

// Took counts the time for which a user's change held the daemon's lock.
func (t *Changes) Took(uid uint32, held time.Duration) {
	now := t.Now()
	limiter := t.limiter(uid, now)
	for n := int(held / ChangeCost); n > 0; n -= ChangesPerSecond {
		limiter.ReserveN(now, min(n, ChangesPerSecond))
	}
}

// limiter returns the limiter of a user. It drops the limiters of users who have their full burst again.
func (t *Changes) limiter(uid uint32, now time.Time) *rate.Limiter {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.users[uid]
	if l == nil {
		maps.DeleteFunc(t.users, func(_ uint32, l *rate.Limiter) bool { return l.TokensAt(now) >= ChangesPerSecond })
		if t.users == nil {
			t.users = map[uint32]*rate.Limiter{}
		}
		l = rate.NewLimiter(ChangesPerSecond, ChangesPerSecond)
		t.users[uid] = l
	}
	return l
}
