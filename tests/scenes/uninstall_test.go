package scenes

import "testing"

// This file plays testdata/uninstall.sh, which checks that gpuarb is not removed while programs need it, and
// that the uninstaller names what it leaves. scene_test.go has the script's machine.

// TestUninstall: gpuarb is installed, used, and removed again.
func TestUninstall(t *testing.T) {
	t.Parallel()
	play(t, "uninstall", "8G")
}
