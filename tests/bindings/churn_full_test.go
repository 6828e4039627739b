//go:build full

package bindings

import "testing"

// This file runs churn_test.go with a thousand cgroups, for the full tests only.

// TestFullThousandCgroups opens, fills, kills and removes a thousand cgroups in each kind of hierarchy.
func TestFullThousandCgroups(t *testing.T) { churnIn(t, 1000) }
