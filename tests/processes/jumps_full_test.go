//go:build full

package processes

import "testing"

// TestFullJumps: the same, until the budget is long used up.
func TestFullJumps(t *testing.T) {
	t.Parallel()
	jumps(t, 5000)
}
