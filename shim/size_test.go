package shim

import (
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/ipc"
)

// A size that goes through a message or a record and back is the same size, also if it is a share
// or "max". accounting/size_test.go tests sizes as users write them.

func TestWireSize(t *testing.T) {
	for _, c := range []struct {
		size  accounting.Size
		bytes uint64
		share uint32
	}{
		{accounting.Size{}, 0, 0},
		{accounting.Size{Bytes: 7}, 7, 0},
		{accounting.Size{PerMille: 125}, ipc.NoLimit, 125},
		{accounting.Size{Max: true}, ipc.NoLimit, 0},
	} {
		bytes, share := WireSize(c.size)
		if back := SizeOf(bytes, share); bytes != c.bytes || share != c.share || back != c.size {
			t.Errorf("%v: %d and %d, read as %v", c.size, bytes, share, back)
		}
	}
}
