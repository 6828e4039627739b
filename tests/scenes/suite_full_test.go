//go:build full

package scenes

import (
	"testing"
	"time"
)

// This file plays testdata/suite.sh as suite_test.go does, for longer. With -v it prints the rows of the table in
// docs/admin/ci.md.

// TestFullSuite: a suite of 40 tests that use numba passes ten times of ten in each way that the page recommends. In the
// other ways some of its tests fail, or it takes longer.
func TestFullSuite(t *testing.T) {
	for _, ways := range []string{"workers", "processes", "others"} {
		t.Run(ways, func(t *testing.T) {
			playFor(t, 20*time.Minute, "suite", "8G", []string{"ways=" + ways}, "SIMCUDA_CONTEXT_BYTES=300M")
		})
	}
}
