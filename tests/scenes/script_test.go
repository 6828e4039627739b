package scenes

import "testing"

// TestScriptWriter: exit statuses, JSON, sizes, time limits, output that cannot be written.
func TestScriptWriter(t *testing.T) {
	t.Parallel()
	play(t, "script", "8G")
}
