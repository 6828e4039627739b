package scenes

import "testing"

// This file plays testdata/notebook.sh, which checks a user's own daemon from its start to its death.
// scene_test.go has the script's machine.

// TestNotebook: a user without root and without FUSE runs a daemon beside the system's, and the user's daemon dies.
func TestNotebook(t *testing.T) {
	t.Parallel()
	play(t, "notebook", "8G")
}
