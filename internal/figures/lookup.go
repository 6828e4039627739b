package figures

// This file finds devices, jobs and processes in a snapshot. The commands and package report call
// it. snapshot.go has the types.

import (
	"iter"
	"slices"

	"github.com/gpuarb/gpuarb/accounting"
)

// Device returns the device with an index; nil: none.
func (s *Snapshot) Device(index int) *DeviceState {
	return find(s.Devices, func(d *DeviceState) bool { return d.Index == index })
}

// Job returns the job with a number; nil: none.
func (s *Snapshot) Job(id uint64) *JobState {
	return find(s.Jobs, func(j *JobState) bool { return j.ID == id })
}

// Process returns the client with a PID; nil: none.
func (s *Snapshot) Process(pid int) *ProcessState {
	return find(s.Processes, func(p *ProcessState) bool { return p.PID == pid })
}

func find[T any](all []T, is func(*T) bool) *T {
	for i := range all {
		if is(&all[i]) {
			return &all[i]
		}
	}
	return nil
}

// Called returns the name of a device for users: "GPU 0", "the processor".
func (s *Snapshot) Called(index int) string {
	if d := s.Device(index); d != nil {
		return d.Called()
	}
	return accounting.DeviceName(index, index == accounting.ProcessorIndex)
}

// Unmanaged yields the processes that use a device without gpuarb, each with its device.
func (s *Snapshot) Unmanaged() iter.Seq2[*DeviceState, *UnmanagedState] {
	return func(yield func(*DeviceState, *UnmanagedState) bool) {
		for i := range s.Devices {
			d := &s.Devices[i]
			for k := range d.UnmanagedBy {
				if !yield(d, &d.UnmanagedBy[k]) {
					return
				}
			}
		}
	}
}

// Owners returns the jobs that have the device as a whole, by claim or exclusively.
func (d *DeviceState) Owners() []HolderState {
	return slices.DeleteFunc(slices.Clone(d.Holders), func(h HolderState) bool { return h.Kind == HoldsSlot })
}

// GPUs returns the devices that are GPUs.
func GPUs(devices []DeviceState) []DeviceState {
	return slices.DeleteFunc(slices.Clone(devices), func(d DeviceState) bool { return !d.IsGPU() })
}
