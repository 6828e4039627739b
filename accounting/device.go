package accounting

import (
	"fmt"
	"strconv"
)

// This file names devices by their indices. Tables, files and messages use these names. ledger.go has the devices.

// VendorCPU is the vendor of the processor: a device that is not a GPU, with the machine's memory.
const VendorCPU = "cpu"

// MaxGPUs is the largest number of GPUs of a machine; further GPUs are ignored.
const MaxGPUs = 64

// ProcessorIndex is the index of the processor inside gpuarb. It is larger than the index of any GPU, so that a GPU that is found later
// gets a free index. Users see [IndexName] and [IndexNumber] instead.
const ProcessorIndex = MaxGPUs

// IndexName returns the name of a device in files and tables: "0", "cpu".
func IndexName(index int) string {
	if index == ProcessorIndex {
		return VendorCPU
	}
	return strconv.Itoa(index)
}

// IndexNumber returns the index of a device in JSON; −1: the processor.
func IndexNumber(index int) int {
	if index == ProcessorIndex {
		return -1
	}
	return index
}

// DeviceName returns the name of a device in messages: "GPU 2", or "the processor".
func DeviceName(index int, processor bool) string {
	if processor {
		return "the processor"
	}
	return fmt.Sprintf("GPU %d", index)
}

// TotalFrom is the source of a device's total memory.
type TotalFrom string

// Sources of the total memory. The first one that has it counts.
const (
	FromConfiguration TotalFrom = "configuration" // memory in a [[device]]
	FromDriver        TotalFrom = "driver"        // NVML or DRM; for the processor the kernel
	FromProbe         TotalFrom = "probe"         // a child process of the daemon that asked CUDA
	FromMachine       TotalFrom = "machine"       // half of the machine's memory, because no other source has it
)
