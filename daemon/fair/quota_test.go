package fair

import (
	"testing"
	"time"
)

// This file checks the bound on lines that decisions on one user's requests may take. tests/events/fair_test.go
// checks it with the history of a daemon.

// TestQuota checks the number of lines of one user in a minute, that other users are not affected, and that dropped
// lines are counted.
func TestQuota(t *testing.T) {
	t.Parallel()
	c, now := Logged(), time.Unix(1000, 0)
	logged := 0
	for range 1000 {
		if ok, dropped := c.Admit(now, 1); ok {
			logged++
		} else if dropped != 0 {
			t.Fatalf("%d left out before anything was", dropped)
		}
	}
	if ok, _ := c.Admit(now, 2); logged != c.Most || !ok {
		t.Errorf("%d lines of one user, the other's logged: %t", logged, ok)
	}
	now = now.Add(time.Minute)
	if ok, dropped := c.Admit(now, 1); !ok || dropped != 1000-c.Most {
		t.Errorf("in the next minute: %t, %d were left out", ok, dropped)
	}
	if len(c.of) != 1 {
		t.Errorf("%d users are remembered, want one", len(c.of))
	}
}
