package web

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gpuarb/gpuarb/figures"
)

// view is the daemon as it was when it was asked last.
type view struct {
	state []byte // as JSON; nil: it did not answer
	err   error  // why it did not
}

// watcher asks the daemon for its state periodically, as often for many readers as for one.
type watcher struct {
	ask     func(context.Context) (figures.Snapshot, error)
	history *history
	events  *happened
	pace    time.Duration // while somebody follows
	hub     *hub
	alive   func() // called again and again, at most some seconds apart while the daemon answers

	mu   sync.Mutex
	last view
	wake chan struct{} // there is a new follower
}

// errNotYet is what is known before the daemon was asked first.
var errNotYet = errors.New("the daemon has not been asked yet")

// bytesAtOnce is how much of the state may go to one follower in a second. A long state is asked for and sent
// less often.
const bytesAtOnce = 256 << 10

func newWatcher(ask func(context.Context) (figures.Snapshot, error)) *watcher {
	hub := newHub()
	return &watcher{ask: ask, history: newHistory(historyStep, historyPoints), events: &happened{hub: hub}, pace: time.Second,
		hub: hub, alive: func() {}, last: view{err: errNotYet}, wake: make(chan struct{}, 1)}
}

// run polls until ctx ends: once for each step of the history, and more often while there are followers.
func (w *watcher) run(ctx context.Context) {
	next := time.Now() // point of the history
	for {
		w.alive()
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

// look asks once, sends the answer to the followers, and returns the shortest pause until the next look.
func (w *watcher) look(ctx context.Context, next *time.Time) time.Duration {
	snapshot, err := w.ask(ctx)
	if ctx.Err() != nil {
		return 0
	}
	at, now := time.Now(), view{err: err}
	if err == nil {
		now.state, now.err = stateJSON(snapshot)
	}
	w.mu.Lock()
	w.last = now
	w.mu.Unlock()
	if !at.Before(*next) {
		point := &snapshot
		if now.err != nil {
			point = nil
		}
		w.history.add(at, point)
		// A machine that slept goes on from where it is.
		if *next = next.Add(w.history.step); next.Before(at) {
			*next = at.Add(w.history.step)
		}
	}
	w.hub.send(now.message())
	return time.Duration(len(now.state)) * time.Second / bytesAtOnce
}

// latest is the last view.
func (w *watcher) latest() view {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// follow subscribes a peer's reader to the messages from now on. ok is false if there are too many followers.
func (w *watcher) follow(peer string) (f *follower, ok bool) {
	if f, ok = w.hub.enter(peer); !ok {
		return nil, false
	}
	select {
	case w.wake <- struct{}{}: // the last view may be as old as a step
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
