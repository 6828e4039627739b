package daemon

// This file records when users read the daemon's state. idle.go uses it to decide how often devices are read.

import (
	"sync"
	"time"
)

const (
	// activeFor is how long the daemon stays active after a user has read its state.
	activeFor = 5 * time.Second
	// pagePollMax is the longest time between two reads by the web page's server while a browser shows the page.
	// Without a browser the server reads every five seconds, for its history.
	pagePollMax = 3 * time.Second
)

// accessTimes stores when the state was last read from outside.
type accessTimes struct {
	mu   sync.Mutex
	user time.Time // last read by a user; zero: there was none
	page time.Time // last read by the web page's server; zero: there was none
}

// noteUser records a read by a user. It reports whether the read is the first one after a pause.
func (l *accessTimes) noteUser(now time.Time) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = l.user.IsZero() || now.Sub(l.user) > activeFor
	l.user = now
	return first
}

// notePage records a read by the web page's server. It reports whether the last such read was less than pagePollMax
// ago, which means that a browser shows the page.
func (l *accessTimes) notePage(now time.Time) (followed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	followed = !l.page.IsZero() && now.Sub(l.page) < pagePollMax
	l.page = now
	return followed
}

// recent reports whether a user has read the state within activeFor.
func (l *accessTimes) recent(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.user.IsZero() && now.Sub(l.user) <= activeFor
}
