package scenes

import "testing"

// This file plays testdata/enable.sh, which checks `gpuarb enable` and `gpuarb disable` for users, groups and
// everybody. scene_test.go has the script's machine.

// TestEnable: programs that are started without gpuarb run are put under gpuarb, and released again.
func TestEnable(t *testing.T) {
	t.Parallel()
	play(t, "enable", "8G")
}
