package fair

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// ChangesPerSecond is how many limits a user changes within any second, by writing into the filesystem
// or by asking; who wants to change more waits. Each costs everybody's time: what is below the limit is
// gone through with the lock held, and is written down and logged.
const ChangesPerSecond = 100

// ChangeTakes is how long a change has the daemon's lock at most to count as one: where thousands are concerned
// by it, it counts as several, so that no user's changes take more than a fifth of everybody's time.
const ChangeTakes = time.Second / 5 / ChangesPerSecond

// Changes has users wait who change limits too often.
type Changes struct {
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time

	mu    sync.Mutex
	users map[uint32]*changer
}

// changer is a user who has changed limits lately.
type changer struct {
	turn   chan struct{} // held by whoever is next: the others come in the order of their arrival
	recent []time.Time   // when the last ones were let through, the oldest first; turn guards it
	owed   atomic.Int64  // as how many more those since then count
	asking int           // how many wait or are being let through; Changes.mu guards it
}

// Wait returns when a user may change a limit, and the context's error where that ended before.
func (t *Changes) Wait(ctx context.Context, uid uint32) error {
	c := t.enter(uid)
	defer t.leave(c)
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	c.let(c.owed.Swap(0), t.Now())
	for len(c.recent) >= ChangesPerSecond {
		if early := time.Second - t.Now().Sub(c.recent[0]); early > 0 {
			select {
			case <-t.After(early):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		c.recent = append(c.recent[:0], c.recent[1:]...)
	}
	c.let(1, t.Now())
	return nil
}

// let notes that so many were let through: as many as may be in this second, and the others in those to come.
func (c *changer) let(n int64, now time.Time) {
	for i := range n {
		c.recent = append(c.recent, now.Add(time.Duration(i/ChangesPerSecond)*time.Second))
	}
}

// Took counts how long a user's change had the daemon's lock.
func (t *Changes) Took(uid uint32, held time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.users[uid]; c != nil {
		c.owed.Add(int64(held / ChangeTakes))
	}
}

func (t *Changes) enter(uid uint32) *changer {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.users[uid]
	if c == nil {
		t.forget(t.Now())
		c = &changer{turn: make(chan struct{}, 1)}
		if t.users == nil {
			t.users = map[uint32]*changer{}
		}
		t.users[uid] = c
	}
	c.asking++
	return c
}

func (t *Changes) leave(c *changer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.asking--
}

// forget drops those of whose changes none counts any more: they begin anew. t.mu is held.
func (t *Changes) forget(now time.Time) {
	maps.DeleteFunc(t.users, func(_ uint32, c *changer) bool { return c.asking == 0 && c.owed.Load() == 0 && !c.counts(now) })
}

// counts tells whether one of the changes let through counts still. The caller knows that none is being let through.
func (c *changer) counts(now time.Time) bool {
	n := len(c.recent)
	return n > 0 && now.Sub(c.recent[n-1]) < time.Second
}
