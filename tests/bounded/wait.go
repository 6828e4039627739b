package bounded

import (
	"testing"
	"time"
)

// Until returns when something has become true, looking again and again; the test
// fails when it has not within Patience.
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

// Receive is the next value of a channel, which has to come within Patience.
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

// Within returns when f has; where that takes longer than Patience, the test fails,
// and f is left behind. For what nothing else can bound, such as a read of a mount
// whose daemon is stuck.
func Within(t testing.TB, what string, f func()) {
	t.Helper()
	if !Done(f) {
		t.Fatalf("after %v not yet: %s", Patience, what)
	}
}

// Done is Within that only says whether f has returned.
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
