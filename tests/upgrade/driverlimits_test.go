package upgrade

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows that limits in the vendor's driver survive the way back to a version that does not know them.

// TestDriverLimitsAreNotLost: the daemon of the version before leaves the limit that this version's daemon has set. When this version's daemon
// is back, it puts the original limit back.
func TestDriverLimitsAreNotLost(t *testing.T) {
	t.Parallel()
	const config = "schema_version = 1\n[[device]]\ncontext_reserve = \"0\"\n"
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true, Binary: now.path(t, "gpuarbd"), Config: config + "[defaults]\ndriver_limits = true\n"})
	s := &scene{t: t, m: m}
	box := m.Cgroup()
	var st unix.Stat_t
	if err := unix.Stat(box.Dir(), &st); err != nil {
		t.Fatal(err)
	}
	limit := filepath.Join(m.Dir, "sim", fmt.Sprintf("limit-0-%d", st.Ino))
	has := func(want string) bool {
		text, _ := os.ReadFile(limit)
		return strings.TrimSpace(string(text)) == want
	}
	const original, held = "0 6442450944", "0 383778816"
	if err := os.WriteFile(limit, []byte(original), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := rig.Run(t, m.Gpuarb("job", "open", "--cgroup", box.Path, "--memory", "100M", "--name", "box")); got.Code != 0 {
		t.Fatal(got.Stderr)
	}
	rig.Eventually(t, "the limit is set", func() bool { return has(held) })
	if err := os.WriteFile(filepath.Join(m.Dir, "gpuarb.toml"), []byte(config), 0o600); err != nil { // the version before does not know the key
		t.Fatal(err)
	}
	s.swap(before)
	if !has(held) {
		t.Error("the daemon of the version before has changed the limit")
	}
	s.swap(now)
	rig.Eventually(t, "the original limit is back", func() bool { return has(original) })
}
