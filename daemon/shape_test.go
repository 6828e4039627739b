package daemon

import (
	"os"
	"strconv"
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/ipc"
)

// This file has the workload of tools/shape, which counts the functions that one granted allocation calls. It runs as
// an ordinary test, too.

// TestShape makes allocations that are granted at once, and checks that all are in use. tools/shape runs it with some
// and with no allocations. From the difference it finds the functions that a granted allocation calls.
func TestShape(t *testing.T) {
	times, err := strconv.Atoi(os.Getenv("GPUARB_SHAPE_TIMES"))
	if err != nil {
		times = 2
	}
	const block = 4096
	b := newBench(t, 1<<30)
	s := b.session()
	for range times {
		if _, err := s.Main.Alloc(t.Context(), ipc.AllocRequest{Slot: 0, Kind: ipc.MemoryPlain, Bytes: block}); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.lease(os.Getpid(), 0).Used; got != accounting.Bytes(times*block) {
		t.Errorf("%d bytes are used", got)
	}
}
