package statefile

import "slices"

// This file stores the devices on which a job reserves a slot. daemon/jobs.go writes them, daemon/recover.go reads them.
//
// They are marked entries of Job.Devices: entries of devices that the job was given, or further ones. The marks lie in
// words that earlier daemons left empty, so that the version of the file stays the same. An earlier daemon ignores the
// marks, and a record of an earlier daemon has none.

// Marks in JobDevice.Keeps.
const (
	keepsSlot  = 1 << 30 // the job reserves a slot on this device
	slotsKnown = 1 << 31 // in the first entry: SetSlotDevices has recorded the devices
)

// GivenDevices returns the devices that the job was given; nil: it may use any.
func (j *Job) GivenDevices() []JobDevice {
	if j.Given == 0 {
		return nil
	}
	return j.Devices[:min(j.Given, MaxDevices)]
}

// SetSlotDevices records the devices on which the job reserves a slot. Given and its entries must be set before. If the
// record has no room for all devices, none is recorded, and the next daemon goes by its own limits.
func (j *Job) SetSlotDevices(devices []JobDevice) {
	for i := range j.Devices {
		j.Devices[i].Keeps = 0
	}
	all := slices.Clone(j.GivenDevices())
	for _, device := range devices {
		at := slices.Index(all, device)
		if at < 0 {
			at = len(all)
			all = append(all, device)
		}
		all[at].Keeps = keepsSlot
	}
	if len(all) > MaxDevices {
		return
	}
	copy(j.Devices[:], all)
	j.Devices[0].Keeps |= slotsKnown
}

// SlotDevices returns the devices that SetSlotDevices recorded; nil: it recorded none.
func (j *Job) SlotDevices() []JobDevice {
	if j.Devices[0].Keeps&slotsKnown == 0 {
		return nil
	}
	devices := []JobDevice{}
	for _, device := range j.Devices {
		if device.Keeps&keepsSlot != 0 {
			device.Keeps = 0
			devices = append(devices, device)
		}
	}
	return devices
}
