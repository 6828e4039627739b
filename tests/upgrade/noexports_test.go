package upgrade

import (
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows which library `gpuarb run` chooses when it and the daemon are of different versions.
// upgrade_test.go has the daemons themselves.

// TestNoExportsAcrossVersions: a rule gives the library without exports. The previous version's command runs programs under
// this rule, and this version's command runs them beside the previous daemon.
func TestNoExportsAcrossVersions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		daemon, command release
		rule, library   string
	}{{now, before, "no_exports = true\n", "no-exports/libgpuarb.so"}, {before, now, "", "libgpuarb.so"}} {
		m := rig.New(t, rig.Options{Devices: "8G", NoMount: true, Binary: c.daemon.path(t, "gpuarbd"),
			Config: "schema_version = 1\n[defaults]\n" + c.rule})
		got := rig.Run(t, m.Command(append(m.Env(), "GPUARB_SOCKET="+m.Socket), c.command.path(t, "gpuarb"),
			"run", "--", "sh", "-c", `echo "$LD_PRELOAD"`))
		if got.Code != 0 || strings.TrimSpace(got.Stdout) != c.command.path(t, c.library) {
			t.Errorf("the command of %v at the daemon of %v: status %d, %q\n%s", c.command, c.daemon, got.Code, got.Stdout, got.Stderr)
		}
	}
}
