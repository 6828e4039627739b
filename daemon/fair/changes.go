package fair

import (
	"context"
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// ChangesPerSecond is how many limits a user changes in a second, by writing into the filesystem
// or by asking, after as many at once; who wants to change more waits. A change takes the daemon's lock while it
// goes through what is below the limit, and is written down and logged.
const ChangesPerSecond = 100

// ChangeCost is how long a change has the daemon's lock at most to count as one: where thousands are concerned
// by it, it counts as several, so that no user's changes take more than a fifth of everybody's time.
const ChangeCost = time.Second / 5 / ChangesPerSecond

// Changes has users wait who change limits too often.
type Changes struct {
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time

	mu    sync.Mutex
	users map[uint32]*rate.Limiter // users who have changed limits lately
}

// Wait returns when a user may change a limit, in the order of the calls, and the context's error where that ended before.
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

// Took counts how long a user's change had the daemon's lock.
func (t *Changes) Took(uid uint32, held time.Duration) {
	now := t.Now()
	limiter := t.limiter(uid, now)
	for n := int(held / ChangeCost); n > 0; n -= ChangesPerSecond {
		limiter.ReserveN(now, min(n, ChangesPerSecond))
	}
}

// limiter returns the limiter of a user. It forgets users who may change as many limits at once as any may.
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
