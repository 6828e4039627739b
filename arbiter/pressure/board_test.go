package pressure

import (
	"slices"
	"testing"
	"time"
)

// TestBoard checks which changes are told: of states, and not of counts that leave them as they are; each gauge once, and one
// that is forgotten only where anybody ever waited.
func TestBoard(t *testing.T) {
	var b Board[string]
	x, y, never := &Gauge[string]{Of: "x"}, &Gauge[string]{Of: "y"}, &Gauge[string]{Of: "never"}
	told := func(step string, want ...Change[string]) {
		t.Helper()
		if got := b.Changes(); !slices.Equal(got, want) {
			t.Errorf("%s: %+v, want %+v", step, got, want)
		}
	}
	b.Count(at(0), 0, 1, x, y, never)
	told("nobody waits")
	b.Count(at(0), 1, 0, x, y)
	b.Count(at(0), 1, 0, x)
	told("some wait", Change[string]{Of: "x", Since: at(0), Some: true}, Change[string]{Of: "y", Since: at(0), Some: true})
	b.Count(at(1000), -1, 0, x)
	b.Count(at(1000), 0, 1, y)
	told("the states are the same")
	b.Count(at(2000), 0, -1, x)
	told("nobody goes on", Change[string]{Of: "x", Since: at(2000), Some: true, Full: true, SomeTotal: 2 * time.Second})
	b.Count(at(3000), 0, -2, y)
	b.Resume(at(3000), x, time.Hour, 0) // somebody waited there already
	b.Resume(at(3000), never, time.Hour, time.Minute)
	b.Forget(y)
	b.Forget(&Gauge[string]{Of: "other"})
	told("forgotten", Change[string]{Of: "y", Gone: true},
		Change[string]{Of: "never", Since: at(3000), SomeTotal: time.Hour, FullTotal: time.Minute})
	if !x.Waits() || never.Waits() || x.Tracker() == nil {
		t.Error("who waits is not known")
	}
}
