package scenes

import "testing"

// TestUninstall: gpuarb is installed, used, and removed again.
func TestUninstall(t *testing.T) {
	t.Parallel()
	play(t, "uninstall", "8G")
}
