//go:build full

package upgrade

import "testing"

// TestFullForthAndBack is TestForthAndBack many times over.
func TestFullForthAndBack(t *testing.T) { forthAndBack(t, 20) }
