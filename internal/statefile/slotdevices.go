package statefile

// This file writes and reads the set of devices of which a job keeps a slot. The set lies in the words of Job.Devices that were empty in records
// of earlier daemons, so that the version of the file is the same: an earlier daemon ignores the set, and a record of an earlier daemon
// has none.

// slotGPUs is the number of GPUs that the set has room for: a bit for each in the words of the first two devices.
const slotGPUs = 64

// Bits in the word of the third device.
const (
	slotsKnown    = 1 << iota // the set was recorded
	slotProcessor             // the device after the GPUs, the processor, is in the set
)

// SetSlotDevices records the indices of the devices of which the job keeps a slot. Indices above slotGPUs are left out.
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

// Kept returns the indices that SetSlotDevices recorded, ascending; nil: it was not called.
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
