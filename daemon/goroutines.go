package daemon

// This file has what the daemon's goroutines are made of: work in the background that is waited for with an end, duties that come round
// with time, and signals. loops.go lists the duties.

import (
	"context"
	"errors"
	"time"
)

// background runs f, and hands on what it returned.
func background(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// errLate says that something has not ended in time.
var errLate = errors.New("too late")

// inTime waits for what is done in the background, until late is over.
func inTime(late context.Context, done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-late.Done():
	}
	select {
	case err := <-done:
		return err
	default:
		return errLate
	}
}

// signal wakes the goroutine that receives from c, a channel with room for one element. A signal that is already there is enough.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// duty is something that is done in a goroutine of its own: as often as wake asks for it, and when the time has come that it named
// itself the last time.
type loop struct {
	wake <-chan struct{}
	next <-chan time.Time
	do   func() (next <-chan time.Time)
}

// run does it until ctx ends.
func (t loop) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
		case <-t.next:
		}
		t.next = t.do()
	}
}
