package statefile

import (
	"slices"
	"testing"
)

// The record of a job says on which devices the job has a slot, in words that earlier daemons ignore. file_test.go
// tests records in general.

// TestSlotDevices checks that a record returns the devices that were written into it, also devices that the job was
// not given. It checks too that an empty set differs from no set: without a set the next daemon goes by its own limits.
func TestSlotDevices(t *testing.T) {
	numbered := func(indices ...uint32) []JobDevice {
		devices := []JobDevice{}
		for _, i := range indices {
			devices = append(devices, JobDevice{UUID: [16]byte{1, byte(i)}, Index: i})
		}
		return devices
	}
	for _, given := range [][]JobDevice{nil, numbered(1), numbered(31, 0)} {
		var j Job
		j.Given = uint32(copy(j.Devices[:], given))
		if got := j.SlotDevices(); got != nil {
			t.Errorf("nothing was recorded: %v", got)
		}
		for _, want := range [][]JobDevice{numbered(), numbered(0), numbered(31), numbered(1, 64), numbered()} {
			j.SetSlotDevices(want)
			if got := j.SlotDevices(); got == nil || len(got) != len(want) || slices.ContainsFunc(want, func(d JobDevice) bool { return !slices.Contains(got, d) }) {
				t.Errorf("given %v: recorded %v, read %v", given, want, got)
			}
			for i, is := range j.GivenDevices() {
				if is.UUID != given[i].UUID || is.Index != given[i].Index {
					t.Errorf("device %d that was given is now %v", i, is)
				}
			}
		}
	}
	var j Job
	j.SetSlotDevices(make([]JobDevice, 1))
	many := []JobDevice{}
	for i := range uint32(MaxDevices + 1) {
		many = append(many, numbered(i)...)
	}
	if j.SetSlotDevices(many); j.SlotDevices() != nil {
		t.Errorf("there is no room for %d, and %v was recorded", len(many), j.SlotDevices())
	}
}
