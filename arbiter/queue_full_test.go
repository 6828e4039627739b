//go:build full

package arbiter_test

import "testing"

// This is the long run of the comparisons in queue_drive_test.go and queue_restart_test.go. tools/test-full.sh runs it.

// TestFullQueueAgainstReference takes two million random steps, without and with restarts and lost devices.
func TestFullQueueAgainstReference(t *testing.T) {
	againstReference(t, 500)
	upsetAgainstReference(t, 600)
}
