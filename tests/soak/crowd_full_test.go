//go:build full

package soak

import "testing"

// This file runs crowd_test.go with many more kills, for the full tests only.

// TestFullKilledUnderACrowd kills the daemon a hundred times under fifty programs.
func TestFullKilledUnderACrowd(t *testing.T) { killUnderCrowd(t, 100) }
