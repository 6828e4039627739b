//go:build full

package preloads

import "testing"

// This file runs all combinations of beside_test.go, for the full tests only.

// TestFullSanitizers runs every sanitizer of both compilers, and both ways to find the driver.
func TestFullSanitizers(t *testing.T) {
	for _, b := range builds {
		t.Run(b.name, func(t *testing.T) { beside(t, b, companion{}, true) })
	}
}

// TestFullCompanions runs every preload and tool, and both ways to find the driver.
func TestFullCompanions(t *testing.T) {
	for _, c := range companions {
		t.Run(c.name, func(t *testing.T) { beside(t, builds[0], c, true) })
	}
}
