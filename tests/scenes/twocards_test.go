package scenes

import "testing"

// This file plays testdata/twocards.sh, which checks that programs of a machine with two cards use and reserve the card that
// they should. scene_test.go has the script's machine.

// TestTwoCards: a server, interns and two users share two cards.
func TestTwoCards(t *testing.T) {
	t.Parallel()
	play(t, "twocards", "8G,8G", "SIMCUDA_CONTEXT_BYTES=64M")
}
