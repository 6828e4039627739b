//go:build full

package soak

import (
	"fmt"
	"testing"
)

// This file runs faultpoints_test.go with a daemon that dies at the second to twelfth pass of each fault point
// too, for the full tests only.

// TestFullDiesAtEachFaultPoint kills the daemon at each fault point, the first time that it comes
// there, then the second time, and so on.
func TestFullDiesAtEachFaultPoint(t *testing.T) {
	for time := range 12 {
		t.Run(fmt.Sprint(time+1), func(t *testing.T) {
			t.Parallel()
			dieAt(t, faultPoints(t), time+1, time > 0)
		})
	}
}
