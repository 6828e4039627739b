//go:build full

package arbiter_test

import "testing"

// TestFullQueueAgainstReference takes two million random steps, without and with restarts and lost devices.
func TestFullQueueAgainstReference(t *testing.T) {
	againstReference(t, 500)
	upsetAgainstReference(t, 600)
}
