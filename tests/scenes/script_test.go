package scenes

import "testing"

// TestScriptWriter: a script uses exit statuses, JSON, sizes, time limits, and output that cannot be written.
func TestScriptWriter(t *testing.T) {
	t.Parallel()
	play(t, "script", "8G")
}
