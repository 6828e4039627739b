package statefile

// This file stores the set of devices on which a job reserves a slot. daemon/jobs.go writes it, daemon/recover.go
// reads it.
//
// The set lies in words of Job.Devices that earlier daemons left empty, so that the version of the file stays the
// same. An earlier daemon ignores the set, and a record of an earlier daemon has none.

// slotGPUs is the number of GPUs that fit into the set: one bit each in the words of the first two devices.
const slotGPUs = 64

// Bits in the word of the third device.
const (
	slotsKnown    = 1 << iota // the set was recorded
	slotProcessor             // the processor, whose index follows those of the GPUs, is in the set
)

// SetSlotDevices records the indices of the devices on which the job reserves a slot. It ignores indices above
// slotGPUs.
func (j *Job) SetSlotDevices(indices []int) {
	words := [3]uint32{2: slotsKnown}
	for _, i := range indices {
		switch {
		case i >= 0 && i < slotGPUs:
			words[i/32] |= 1 << (i % 32)
		case i == slotGPUs:
			words[2] |= slotProcessor
		}
	}
	for i, word := range words {
		j.Devices[i].Keeps = word
	}
}

// SlotDevices returns the indices that SetSlotDevices recorded, ascending; nil: it was not called.
func (j *Job) SlotDevices() []int {
	if j.Devices[2].Keeps&slotsKnown == 0 {
		return nil
	}
	indices := []int{}
	for i := range slotGPUs {
		if j.Devices[i/32].Keeps>>(i%32)&1 != 0 {
			indices = append(indices, i)
		}
	}
	if j.Devices[2].Keeps&slotProcessor != 0 {
		indices = append(indices, slotGPUs)
	}
	return indices
}
