//go:build full

package soak

import "testing"

// TestFullKilledUnderACrowd kills the daemon a hundred times under fifty programs.
func TestFullKilledUnderACrowd(t *testing.T) { killUnderCrowd(t, 100) }
