package history

import (
	"testing"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/internal/events"
)

// This file checks which user's share of the history each kind of event uses up. tests/events reads the history as
// users do.

// TestOwnerOf checks that events which a user can cause at any rate count against that user's share of the history.
func TestOwnerOf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		event arbiter.Event
		want  events.Owner
	}{
		"a device is lost":                  {arbiter.Event{Kind: arbiter.EventDeviceLost}, events.Daemon},
		"a rule's budget is over":           {arbiter.Event{Kind: arbiter.EventOver}, events.Daemon},
		"a job's or a user's own is over":   {arbiter.Event{Kind: arbiter.EventOver, UID: 7, User: "ann"}, 7},
		"it is within":                      {arbiter.Event{Kind: arbiter.EventWithin, UID: 7, User: "ann"}, 7},
		"root's own is over":                {arbiter.Event{Kind: arbiter.EventOver, User: "root"}, 0},
		"a program is refused":              {arbiter.Event{Kind: arbiter.EventDenied, PID: 9, UID: 7}, 7},
		"a limit is changed":                {arbiter.Event{Kind: arbiter.EventLimits, UID: 7}, 7},
		"what was too much of a user's":     {arbiter.Event{Kind: eventsDropped, UID: 7}, 7},
		"what was too much of the daemon's": {arbiter.Event{Kind: eventsDropped, UID: noUser}, events.Daemon},
	} {
		if got := ownerOf(c.event); got != c.want {
			t.Errorf("%s: it is of %d, want %d", name, got, c.want)
		}
	}
}
