package scenes

import "testing"

// TestNotebook: somebody without root and without FUSE, whose own daemon dies beside the system's.
func TestNotebook(t *testing.T) {
	t.Parallel()
	play(t, "notebook", "8G")
}
