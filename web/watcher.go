package web

// This file asks the daemon for its state periodically. history.go keeps the answers, and hub.go
// sends them to the readers.

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gpuarb/gpuarb/internal/figures"
)

// view is the latest answer of the daemon, or why there was none.
type view struct {
	state []byte // state as JSON; nil: the daemon did not answer
	err   error  // why the daemon did not answer
}

// watcher asks the daemon for its state periodically. The number of readers does not change how
// often.
type watcher struct {
	ask      func(context.Context) (figures.Snapshot, error)
	history  *history
	events   *eventLog
	interval time.Duration // pause between two questions while there are followers
	hub      *hub
	alive    func() // called repeatedly, at most some seconds apart while the daemon answers

	mu   sync.Mutex
	last view
	wake chan struct{} // receives when there is a new follower
}

// errNotAsked is the state before the first question to the daemon.
var errNotAsked = errors.New("the daemon has not been asked yet")

// bytesAtOnce bounds how much of the state is sent to a follower in a second. A long state is asked
// for and sent less often.
const bytesAtOnce = 256 << 10

func newWatcher(ask func(context.Context) (figures.Snapshot, error)) *watcher {
	hub := newHub()
	return &watcher{ask: ask, history: newHistory(spans...), events: &eventLog{hub: hub}, interval: time.Second,
		hub: hub, alive: func() {}, last: view{err: errNotAsked}, wake: make(chan struct{}, 1)}
}

// run polls until ctx ends: once in each step of the history, and more often while there are
// followers.
func (w *watcher) run(ctx context.Context) {
	next := time.Now() // time of the next point of the history
	for {
		w.alive()
		took := w.poll(ctx, &next)
		pause := time.Until(next)
		if w.hub.len() > 0 {
			pause = min(pause, max(w.interval, took))
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

// poll asks the daemon once and sends the answer to the followers. It returns the shortest pause
// until the next question.
func (w *watcher) poll(ctx context.Context, next *time.Time) time.Duration {
	snapshot, err := w.ask(ctx)
	if ctx.Err() != nil {
		return 0
	}
	at, now := time.Now(), view{err: err}
	if err == nil {
		now.state, now.err = stateJSON(snapshot)
	}
	if !at.Before(*next) {
		point := &snapshot
		if now.err != nil {
			point = nil
		}
		w.history.add(at, point)
		// After the machine was suspended, continue from the present time.
		if *next = next.Add(w.history.step()); next.Before(at) {
			*next = at.Add(w.history.step())
		}
	}
	w.mu.Lock()
	w.last = now // after the point was added, so that who sees the first state finds it in the history too
	w.mu.Unlock()
	w.hub.send(now.message())
	return time.Duration(len(now.state)) * time.Second / bytesAtOnce
}

// latest returns the latest view.
func (w *watcher) latest() view {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// follow subscribes a reader of a peer to the messages from now on. ok is false if there are too
// many followers.
func (w *watcher) follow(peer string) (f *follower, ok bool) {
	if f, ok = w.hub.enter(peer); !ok {
		return nil, false
	}
	select {
	case w.wake <- struct{}{}: // the latest view may be as old as a step
	default:
	}
	return f, true
}

// message returns the view as a server-sent event.
func (v view) message() []byte {
	if v.state == nil {
		return event("down", downJSON(v.err))
	}
	return event("state", v.state)
}
