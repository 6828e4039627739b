//go:build full

package processes

import (
	"fmt"
	"testing"
)

// TestFullJumps is TestJumps twenty times over, each with programs of its own: a call that was
// jumped out of may cost the next one a second, so one program cannot jump for long.
func TestFullJumps(t *testing.T) {
	for n := range 20 {
		t.Run(fmt.Sprint(n), func(t *testing.T) { jumps(t, 200) })
	}
}
