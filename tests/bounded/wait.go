package bounded

import (
	"testing"
	"time"
)

// This file waits for states, channels and functions within Patience, for tests that would otherwise need a fixed pause.

// Until polls f until it returns true. The test
// fails if that takes longer than Patience; what describes the expected state.
func Until(t testing.TB, what string, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(Patience)
	for pause := 100 * time.Microsecond; !f(); pause = min(2*pause, 20*time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %v not yet: %s", Patience, what)
		}
		time.Sleep(pause)
	}
}

// Receive returns the next value of a channel. The test fails if no value comes within Patience.
func Receive[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(Patience):
		t.Fatalf("after %v not yet: %s", Patience, what)
		panic("not reached")
	}
}

// Within runs f and returns when f does. If that takes longer than Patience, the test fails
// and f is left running. Use it for calls that cannot be interrupted, such as a read of a mount
// whose daemon is stuck.
func Within(t testing.TB, what string, f func()) {
	t.Helper()
	if !Done(f) {
		t.Fatalf("after %v not yet: %s", Patience, what)
	}
}

// Done runs f and reports whether it returned within Patience.
func Done(f func()) bool {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
		return true
	case <-time.After(Patience):
		return false
	}
}
