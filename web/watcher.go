package web

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// view is the daemon as it was when it was asked last.
type view struct {
	at    time.Time
	state []byte // as JSON; nil: it did not answer
	err   error  // why it did not
}

// watcher asks the daemon again and again, at a pace that does not depend on how many look.
type watcher struct {
	ask     func(context.Context) (accounting.Snapshot, error)
	history *history
	events  *happened
	pace    time.Duration // while somebody follows
	hub     *hub

	mu   sync.Mutex
	last view
	wake chan struct{} // somebody follows who did not
}

// errNotYet is what is known before the daemon was asked first.
var errNotYet = errors.New("the daemon has not been asked yet")

// bytesAtOnce is how much of the state may go to one follower in a second. A long state is asked for and sent
// less often.
const bytesAtOnce = 256 << 10

func newWatcher(ask func(context.Context) (accounting.Snapshot, error)) *watcher {
	hub := newHub()
	return &watcher{ask: ask, history: newHistory(historyStep, historyPoints), events: &happened{hub: hub}, pace: time.Second,
		hub: hub, last: view{err: errNotYet}, wake: make(chan struct{}, 1)}
}

// run looks until ctx ends: each step of the history, and more often while somebody follows.
func (w *watcher) run(ctx context.Context) {
	next := time.Now() // point of the history
	for {
		took := w.look(ctx, &next)
		pause := time.Until(next)
		if w.hub.len() > 0 {
			pause = min(pause, max(w.pace, took))
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-w.wake:
			timer.Stop()
		}
	}
}

// look asks once, tells those who follow, and says how long it is to the next time at least.
func (w *watcher) look(ctx context.Context, next *time.Time) time.Duration {
	snapshot, err := w.ask(ctx)
	if ctx.Err() != nil {
		return 0
	}
	now := view{at: time.Now(), err: err}
	if err == nil {
		now.state, now.err = stateJSON(snapshot)
	}
	w.mu.Lock()
	w.last = now
	w.mu.Unlock()
	if !now.at.Before(*next) {
		point := &snapshot
		if now.err != nil {
			point = nil
		}
		w.history.add(now.at, point)
		// A machine that slept goes on from where it is.
		if *next = next.Add(w.history.step); next.Before(now.at) {
			*next = now.at.Add(w.history.step)
		}
	}
	w.hub.send(now.message())
	return time.Duration(len(now.state)) * time.Second / bytesAtOnce
}

// latest is what is known.
func (w *watcher) latest() view {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// follow has the messages of what is seen from now on be sent; the last one known is the first. ok is false where
// too many follow.
func (w *watcher) follow() (f *follower, ok bool) {
	if f, ok = w.hub.enter(); !ok {
		return nil, false
	}
	select {
	case w.wake <- struct{}{}: // what is known may be as old as a step
	default:
	}
	return f, true
}

// message is the view as a server-sent event.
func (v view) message() []byte {
	if v.state == nil {
		return event("down", downJSON(v.err))
	}
	return event("state", v.state)
}
