package scenes

import "testing"

// TestEight: a CI runner runs eight tests on one GPU.
func TestEight(t *testing.T) {
	t.Parallel()
	play(t, "eight", "8G", "SIMCUDA_CONTEXT_BYTES=300M")
}
