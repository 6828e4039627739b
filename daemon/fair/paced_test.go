package fair

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file checks that many callers of Paced share values, and that no caller gets a value that is older than its
// call.

// TestPaced checks that concurrent callers share a value, that values are made one at a time, and that each caller
// gets a value whose making began after the call.
func TestPaced(t *testing.T) {
	var made Paced[int64]
	var inside, most, number atomic.Int64
	produce := func() int64 {
		most.Store(max(most.Load(), inside.Add(1)))
		defer inside.Add(-1)
		n := number.Add(1)
		time.Sleep(time.Millisecond)
		return n
	}
	var wg sync.WaitGroup
	const readers, rounds = 32, 20
	for range readers {
		wg.Go(func() {
			for range rounds {
				begun := number.Load()
				if got := made.Get(produce); got <= begun {
					t.Errorf("answer %d, where %d was begun before", got, begun)
				}
			}
		})
	}
	bounded.Within(t, "all have theirs", wg.Wait)
	if most.Load() != 1 {
		t.Errorf("%d at once", most.Load())
	}
	if n := number.Load(); n > readers*rounds/4 {
		t.Errorf("%d were made for %d who asked: they are not shared", n, readers*rounds)
	}
}
