package scenes

import (
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file plays testdata/suite.sh, which runs a suite of 40 GPU tests in the ways that docs/admin/ci.md recommends.
// suite_full_test.go plays it ten times in each, and in the other ways of the page. scene_test.go has the script's
// machine.

// TestSuite: a CI runner runs tests that use numba, in each way that the page recommends.
func TestSuite(t *testing.T) {
	t.Parallel()
	playFor(t, bounded.Lifetime, "suite", "8G", []string{"ways=once"}, "SIMCUDA_CONTEXT_BYTES=300M")
}
