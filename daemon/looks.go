package daemon

// This file notes when users look at the daemon's state. idle.go asks, to decide how often devices are read.

import (
	"sync"
	"time"
)

const (
	// watchedFor is how long the daemon is not idle after a look at its state.
	watchedFor = 5 * time.Second
	// followedFor is the longest time between two looks of the process that serves the page while a browser shows the
	// page. Without one, that process looks every five seconds, for its history.
	followedFor = 3 * time.Second
)

// looks notes when the daemon's state was last looked at from outside.
type looks struct {
	mu      sync.Mutex
	watched time.Time // last look of a user; zero: there was none
	page    time.Time // last look of the process that serves the page; zero: there was none
}

// watch notes a look of a user. It reports whether the look is the first one after a pause.
func (l *looks) watch(now time.Time) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = l.watched.IsZero() || now.Sub(l.watched) > watchedFor
	l.watched = now
	return first
}

// follow notes a look of the process that serves the page. It reports whether the last one was less than followedFor ago: then a
// browser shows the page.
func (l *looks) follow(now time.Time) (followed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	followed = !l.page.IsZero() && now.Sub(l.page) < followedFor
	l.page = now
	return followed
}

// lately reports whether a user has looked at the state within watchedFor.
func (l *looks) lately(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.watched.IsZero() && now.Sub(l.watched) <= watchedFor
}
