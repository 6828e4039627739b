package statefile

import (
	"slices"
	"testing"
)

// TestKept checks that a record tells the devices that were written into it, and tells an empty set from none: a daemon that does not know
// judges by the limits of today.
func TestKept(t *testing.T) {
	var j Job
	if got := j.SlotDevices(); got != nil {
		t.Errorf("nothing was recorded: %v", got)
	}
	for _, want := range [][]int{{}, {0}, {31, 32, 63}, {1, 64}, {}} {
		j.SetSlotDevices(want)
		if got := j.SlotDevices(); got == nil || !slices.Equal(got, want) {
			t.Errorf("recorded %v, read %v", want, got)
		}
	}
}
