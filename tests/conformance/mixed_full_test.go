//go:build full

package conformance

import (
	"fmt"
	"testing"
)

// This file has the long form of the tests in mixed_test.go, for `make test-full`.

// TestFullMixed repeats the tests of mixed interfaces a hundred times; `make test` repeats them a few times.
func TestFullMixed(t *testing.T) {
	const times = 100
	for _, most := range []int{1, 2} {
		t.Run(fmt.Sprint("A1 cap ", most), func(t *testing.T) { oneCap(t, most, times) })
		t.Run(fmt.Sprint("A6 processes, cap ", most), func(t *testing.T) { twentyProcesses(t, most, times) })
		t.Run(fmt.Sprint("A6 threads, cap ", most), func(t *testing.T) { twentyThreads(t, most, times) })
	}
	t.Run("A2", func(t *testing.T) { permitFirst(t, times) })
	for _, scope := range []string{"job", "process", "thread"} {
		t.Run("A3 "+scope, func(t *testing.T) { reentrant(t, scope, times) })
	}
	t.Run("A3 one job", func(t *testing.T) { reentrantJob(t, times) })
	for _, size := range []string{"64K", "0"} {
		t.Run("A4 "+size, func(t *testing.T) { lastObject(t, size, times) })
	}
	t.Run("A5", func(t *testing.T) { tunable(t, "2", 2, times) })
	t.Run("A7", func(t *testing.T) { deadHolder(t, times) })
}
