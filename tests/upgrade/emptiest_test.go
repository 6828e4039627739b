package upgrade

import (
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows that a command says so if it asks an earlier daemon for what that daemon does not know.
// noexports_test.go has the opposite: an earlier command beside this version's daemon.

// TestEmptiestOfAnEarlierDaemon: `gpuarb run --device emptiest` starts nothing beside the previous version's daemon, and says
// what to do.
func TestEmptiestOfAnEarlierDaemon(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G,8G", NoMount: true, Binary: before.path(t, "gpuarbd")})
	got := rig.Run(t, m.Gpuarb("run", "--device", "emptiest", "--", "echo", "started"))
	if got.Code == 0 || got.Stdout != "" || !strings.Contains(got.Stderr, "restart gpuarbd, or name a device") {
		t.Errorf("status %d, %q, %s", got.Code, got.Stdout, got.Stderr)
	}
}
