//go:build full

package bindings

import "testing"

// This file runs churn_test.go with a thousand cgroups, for the full tests only.

// TestFullThousandCgroups runs churnIn until a thousand cgroups were made in each kind of hierarchy.
func TestFullThousandCgroups(t *testing.T) { churnIn(t, 1000) }
