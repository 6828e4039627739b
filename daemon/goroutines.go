package daemon

// This file has helpers for the daemon's goroutines: background work with a deadline, loops and signals. loops.go
// lists the loops; start.go and stop.go use the rest.

import (
	"context"
	"errors"
	"time"
)

// background runs f in a goroutine. The channel receives what f returns.
func background(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// errLate says that background work has not ended in time.
var errLate = errors.New("too late")

// waitUntil waits for background work, and returns its error, or errLate if late ends first.
func waitUntil(late context.Context, done <-chan error) error {
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

// signal wakes the goroutine that receives from c, a channel with room for one element. A signal that is already
// pending suffices.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// loop repeats a function in its own goroutine: when wake receives, and at the time that the last call returned.
type loop struct {
	wake <-chan struct{}
	next <-chan time.Time
	do   func() (next <-chan time.Time)
}

// run repeats the function until ctx ends.
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
