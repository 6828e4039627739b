package arbiter_test

import (
	"testing"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// TestDevicesInOrder: snapshots list devices by index, in whatever order they were added.
func TestDevicesInOrder(t *testing.T) {
	a := arbiter.New(rules.DefaultPolicy())
	for _, index := range []int{5, 0, 3, 1, 4, 2} {
		a.AddDevice(start, rules.Device{Index: index, Total: 1 << 30})
	}
	for i, d := range a.Snapshot(start).Devices {
		if d.Index != i {
			t.Errorf("line %d is device %d", i, d.Index)
		}
	}
}
