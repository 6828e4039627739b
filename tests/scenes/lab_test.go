package scenes

import "testing"

// This file plays testdata/lab.sh, which checks limits for a group of users and what each of them sees.
// scene_test.go has the script's machine.

// TestLab: three users of a lab share a quarter of its GPU.
func TestLab(t *testing.T) {
	t.Parallel()
	play(t, "lab", "8G", "SIMCUDA_CONTEXT_BYTES=0")
}
