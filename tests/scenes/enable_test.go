package scenes

import "testing"

// TestEnable: programs that nobody starts through gpuarb run are put under it, and released again.
func TestEnable(t *testing.T) {
	t.Parallel()
	play(t, "enable", "8G")
}
