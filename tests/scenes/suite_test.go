package scenes

import "testing"

// This file plays testdata/suite.sh, which runs a suite of 40 GPU tests as docs/admin/ci.md recommends. suite_full_test.go plays it ten times.
// scene_test.go has the script's machine.

// TestSuite: a CI runner runs 40 tests that use numba, in each way that the page recommends.
func TestSuite(t *testing.T) {
	t.Parallel()
	play(t, "suite", "8G", "SIMCUDA_CONTEXT_BYTES=300M")
}
