package scenes

import "testing"

// This file plays testdata/eight.sh, which checks that eight tests at once get one GPU in turns without an
// error. scene_test.go has the script's machine.

// TestEight: a CI runner runs eight tests on one GPU.
func TestEight(t *testing.T) {
	t.Parallel()
	play(t, "eight", "8G", "SIMCUDA_CONTEXT_BYTES=300M")
}
