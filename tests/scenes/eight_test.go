package scenes

import "testing"

// TestEight: a CI runner with eight tests on one card.
func TestEight(t *testing.T) {
	t.Parallel()
	play(t, "eight", "8G", "SIMCUDA_CONTEXT_BYTES=300M")
}
