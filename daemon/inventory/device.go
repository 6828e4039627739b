package inventory

// This file has a device and what it uses, as each source tells them: nvmlread.go, drm.go and cpu.go. inventory.go puts the sources together.

import "github.com/gpuarb/gpuarb/accounting"

// Device is one GPU, an instance that MIG made of one, or the processor, as it was found. Nothing in it changes while the
// inventory is open.
type Device struct {
	Index  int    // unique on this machine, below [accounting.MaxGPUs]: NVIDIA first, by NVML's index, then AMD, then Intel; the processor has [accounting.ProcessorIndex]
	Vendor string // nvidia, amd, intel or cpu
	// Ordinal is its number among the vendor's devices, as the vendor's own variable
	// takes it (CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, ZE_AFFINITY_MASK).
	Ordinal int
	Name    string
	UUID    string // "GPU-…", "MIG-…" as the vendor's own tools spell it, "CPU-…" for the processor; empty if the device has none
	PCI     string // domain:bus:device.function, lower case; empty if the driver does not say
	Parent  string // UUID of the GPU that MIG made it of; empty: it is none of MIG's instances
	// UUIDBytes is the identity of the device in the vendor's programming interface:
	// the parsed UUID for NVIDIA, the sixteen digits as text for AMD, zero for Intel; for the
	// processor the one that [ProcessorUUID] says.
	UUIDBytes [16]byte
	Total     uint64               // bytes of device memory; of the processor, of the machine's; 0: the driver does not say
	From      accounting.TotalFrom // where Total comes from; empty: the driver
	Reserved  uint64               // bytes inside Total that the driver keeps for itself; 0 if it does not say
}

// ProcessUsage is the memory of one process on one device, as the driver says.
type ProcessUsage struct {
	PID   int
	Bytes uint64
}

// Usage is one reading of a device.
type Usage struct {
	Processes []ProcessUsage // by PID, each once
	// Lost: the device no longer answers; nothing else is filled in.
	Lost bool
	// ProcessesKnown is false where the device does not say who uses it or how much each holds.
	ProcessesKnown bool
}

// source reads one device. Its methods are safe for concurrent use.
type source interface {
	usage() (Usage, error)
}

// found is a device with the source of its readings. A device whose index is anyIndex gets the next free one.
type found struct {
	device Device
	source source
}

const anyIndex = -1

func appendReason(reasons []string, reason string) []string {
	if reason == "" {
		return reasons
	}
	return append(reasons, reason)
}
