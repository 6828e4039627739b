package daemon

import (
	"context"
	"sync"
	"time"
)

// changesPerSecond is how many limits a user changes within any second, by writing into the filesystem
// or by asking; who wants to change more waits. Each costs everybody's time: what is below the limit is
// gone through with the lock held, and is written down and logged.
const changesPerSecond = 100

// throttle has users wait who change limits too often. Its zero value has no clock.
type throttle struct {
	clock clock

	mu    sync.Mutex
	users map[uint32]*changer
}

// changer is a user who has changed limits lately.
type changer struct {
	turn   chan struct{} // held by whoever is next: the others come in the order of their arrival
	recent []time.Time   // when the last ones were let through, the oldest first; turn guards it
	asking int           // how many wait or are being let through; throttle.mu guards it
	last   time.Time     // when one came
}

// wait returns when a user may change a limit, and the context's error where that ended before.
// Root, and whose daemon it is, never wait: nobody's time is spent but by their leave.
func (t *throttle) wait(ctx context.Context, uid uint32) error {
	if privileged(uid) {
		return nil
	}
	c := t.enter(uid)
	defer t.leave(c)
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if len(c.recent) >= changesPerSecond {
		if early := time.Second - t.clock.now().Sub(c.recent[0]); early > 0 {
			select {
			case <-t.clock.after(early):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		c.recent = append(c.recent[:0], c.recent[1:]...)
	}
	c.recent = append(c.recent, t.clock.now())
	return nil
}

func (t *throttle) enter(uid uint32) *changer {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.now()
	c := t.users[uid]
	if c == nil {
		t.forget(now)
		c = &changer{turn: make(chan struct{}, 1)}
		if t.users == nil {
			t.users = map[uint32]*changer{}
		}
		t.users[uid] = c
	}
	c.asking, c.last = c.asking+1, now
	return c
}

func (t *throttle) leave(c *changer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.asking--
	c.last = t.clock.now()
}

// forget drops those who have changed nothing for a second: they begin anew. The lock is held.
func (t *throttle) forget(now time.Time) {
	for uid, c := range t.users {
		if c.asking == 0 && now.Sub(c.last) >= time.Second {
			delete(t.users, uid)
		}
	}
}
