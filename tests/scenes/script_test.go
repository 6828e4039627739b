package scenes

import "testing"

// This file plays testdata/script.sh, which checks what a script can rely on in the output and the exit status
// of gpuarb. scene_test.go has the script's machine.

// TestScriptWriter: a script uses exit statuses, JSON, sizes, time limits, and output that cannot be written.
func TestScriptWriter(t *testing.T) {
	t.Parallel()
	play(t, "script", "8G")
}
