package daemon

// This file notes when users look at the daemon's state. idle.go asks, to decide how often devices are read.

import (
	"sync"
	"time"
)

const (
	// activeFor is how long the daemon is not idle after a look at its state.
	activeFor = 5 * time.Second
	// pagePollMax is the longest time between two looks of the process that serves the page while a browser shows the
	// page. Without one, that process looks every five seconds, for its history.
	pagePollMax = 3 * time.Second
)

// looks notes when the daemon's state was last looked at from outside.
type accessTimes struct {
	mu   sync.Mutex
	user time.Time // last look of a user; zero: there was none
	page time.Time // last look of the process that serves the page; zero: there was none
}

// watch notes a look of a user. It reports whether the look is the first one after a pause.
func (l *accessTimes) noteUser(now time.Time) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = l.user.IsZero() || now.Sub(l.user) > activeFor
	l.user = now
	return first
}

// follow notes a look of the process that serves the page. It reports whether the last one was less than pagePollMax ago: then a
// browser shows the page.
func (l *accessTimes) notePage(now time.Time) (followed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	followed = !l.page.IsZero() && now.Sub(l.page) < pagePollMax
	l.page = now
	return followed
}

// lately reports whether a user has looked at the state within activeFor.
func (l *accessTimes) recent(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.user.IsZero() && now.Sub(l.user) <= activeFor
}
