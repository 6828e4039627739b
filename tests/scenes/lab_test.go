package scenes

import "testing"

// TestLab: a lab's box with three users who share a quarter of the card.
func TestLab(t *testing.T) {
	t.Parallel()
	play(t, "lab", "8G", "SIMCUDA_CONTEXT_BYTES=0")
}
