//go:build full

package upgrade

import "testing"

// This file runs upgrade_test.go with many more changes of version, for the full tests only.

// TestFullForthAndBack repeats TestForthAndBack many times.
func TestFullForthAndBack(t *testing.T) { forthAndBack(t, 20) }
