package daemon

import (
	"os"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/internal/config"
)

// This file checks the mode and the name of the file that keeps the last configuration without mistakes.
// tests/e2e/lastgood_test.go starts daemons that need the kept configuration.

// TestKeptConfiguration checks that only the owner can read the last good configuration, also if its file was
// readable before. It also checks that main files with long paths are kept.
func TestKeptConfiguration(t *testing.T) {
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	c, err := config.Parse("x.toml", []byte("schema_version = 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	o := Options{}
	for _, main := range []string{"", "/etc/gpuarb/x.toml", "/" + strings.Repeat("long/", 100) + "x.toml"} {
		for range 2 {
			if err := o.keepLastGood(main, c); err != nil {
				t.Fatal(err)
			}
			if _, _, err := o.lastGood(main); err != nil {
				t.Error(err)
			}
			path := o.lastGoodPath(main)
			if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
				t.Errorf("%s: %v, %v", path, info.Mode(), err)
			}
			if err := os.Chmod(path, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}
