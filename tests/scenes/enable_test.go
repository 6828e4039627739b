package scenes

import "testing"

// TestEnable: programs that are started without gpuarb run are put under gpuarb, and released again.
func TestEnable(t *testing.T) {
	t.Parallel()
	play(t, "enable", "8G")
}
