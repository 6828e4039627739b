package inventory

// This file has the types of a device and of its readings. nvmlread.go, drm.go and cpu.go read devices; inventory.go
// combines them.

import "github.com/gpuarb/gpuarb/accounting"

// Device is a GPU, a MIG instance of a GPU, or the processor, as it was found. It does not change while the inventory
// is open.
type Device struct {
	Index  int    // unique on this machine, below [accounting.MaxGPUs]: NVIDIA first, by NVML's index, then AMD, then Intel; the processor has [accounting.ProcessorIndex]
	Vendor string // nvidia, amd, intel or cpu
	// Ordinal is the device's number among the vendor's devices, as the vendor's variable counts
	// (CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, ZE_AFFINITY_MASK).
	Ordinal int
	Name    string
	UUID    string // "GPU-…", "MIG-…" as the vendor's own tools spell it, "CPU-…" for the processor; empty if the device has none
	PCI     string // domain:bus:device.function, lower case; empty: unknown
	Parent  string // UUID of the GPU that has this MIG instance; empty: not a MIG instance
	// UUIDBytes is the device's identity in the vendor's programming interface: the parsed UUID for NVIDIA, the
	// sixteen digits as text for AMD, zero for Intel, [ProcessorUUID] for the processor.
	UUIDBytes [16]byte
	Total     uint64               // bytes of device memory, or of the machine's memory for the processor; 0: unknown
	From      accounting.TotalFrom // source of Total; empty: the driver
	Reserved  uint64               // bytes of Total that the driver keeps for itself; 0: unknown
}

// ProcessUsage is the memory of one process on one device, as the driver reports it.
type ProcessUsage struct {
	PID   int
	Bytes uint64
}

// Usage is one reading of a device.
type Usage struct {
	Processes []ProcessUsage // sorted by PID, each PID once
	// Lost means that the device no longer answers; the other fields are zero.
	Lost bool
	// ProcessesKnown is false if the device does not report its processes or the memory of each.
	ProcessesKnown bool
}

// source reads one device. Its methods are safe for concurrent use.
type source interface {
	usage() (Usage, error)
	utilisation() map[int]int // see Inventory.Utilisation
}

// foundDevice is a device with the source of its readings. A device with the index anyIndex gets the next free index.
type foundDevice struct {
	device Device
	source source
}

const anyIndex = -1

// appendReason appends a reason unless it is empty.
func appendReason(reasons []string, reason string) []string {
	if reason == "" {
		return reasons
	}
	return append(reasons, reason)
}
