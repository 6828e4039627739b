package daemon

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRunAsBatch: threads that there are and those that begin later take the processor from nobody.
func TestRunAsBatch(t *testing.T) {
	runAsBatch()
	policies := make(chan uint32)
	for range 4 { // each on a thread of its own
		go func() {
			runtime.LockOSThread()
			a, err := unix.SchedGetAttr(0, 0)
			if err != nil {
				a = &unix.SchedAttr{}
			}
			policies <- a.Policy
		}()
	}
	for range 4 {
		if p := <-policies; p != unix.SCHED_BATCH {
			t.Errorf("a thread has the policy %d", p)
		}
	}
}
