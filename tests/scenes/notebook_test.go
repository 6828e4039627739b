package scenes

import "testing"

// TestNotebook: a user without root and without FUSE runs a daemon beside the system's, and the user's daemon dies.
func TestNotebook(t *testing.T) {
	t.Parallel()
	play(t, "notebook", "8G")
}
