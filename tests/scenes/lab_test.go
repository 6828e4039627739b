package scenes

import "testing"

// TestLab: three users of a lab share a quarter of its GPU.
func TestLab(t *testing.T) {
	t.Parallel()
	play(t, "lab", "8G", "SIMCUDA_CONTEXT_BYTES=0")
}
