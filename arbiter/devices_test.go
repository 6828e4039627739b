package arbiter_test

import (
	"testing"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// Users see devices in the order of their indices. restore_test.go, observe_test.go and queue_restart_test.go test devices that are lost
// and come back.

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
