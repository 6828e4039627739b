//go:build full

package evict

import (
	"testing"
	"time"
)

// This file has the long form of turns_test.go.

// TestFullTurns: two programs that never fit together, each of which pauses for longer than evict.idle_after between bursts, both go on for
// a minute, and change at most once in evict.min_resident.
func TestFullTurns(t *testing.T) {
	t.Parallel()
	turns(t, func(elapsed time.Duration, _ [2]*worker) bool { return elapsed > time.Minute })
}
