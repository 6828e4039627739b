package scenes

import "testing"

// This file plays testdata/servers.sh, which checks that a server that cannot load all of its weights stops no other server.
// scene_test.go has the script's machine.

// TestServers: three model servers share a card that has room for two and a half.
func TestServers(t *testing.T) {
	t.Parallel()
	play(t, "servers", "24G", "SIMCUDA_CONTEXT_BYTES=64M")
}
