//go:build full

package upgrade

import "testing"

// TestFullForthAndBack repeats TestForthAndBack many times.
func TestFullForthAndBack(t *testing.T) { forthAndBack(t, 20) }
