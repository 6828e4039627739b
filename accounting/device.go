package accounting

import (
	"fmt"
	"strconv"
)

// This file names devices by their indices. Tables, files and messages use these names.

// VendorCPU is the vendor of the processor: a device with the machine's memory, and no GPU.
const VendorCPU = "cpu"

// MaxGPUs bounds the GPUs of a machine; further ones are left out.
const MaxGPUs = 64

// ProcessorIndex is the processor's index inside gpuarb. It is larger than that of any GPU, so that a GPU that comes late
// finds an index free. Users are shown [IndexName] and [IndexNumber] instead.
const ProcessorIndex = MaxGPUs

// IndexName returns how files and tables name the device with an index: "0", "cpu".
func IndexName(index int) string {
	if index == ProcessorIndex {
		return VendorCPU
	}
	return strconv.Itoa(index)
}

// IndexNumber returns the index of a device in JSON: −1 for the processor.
func IndexNumber(index int) int {
	if index == ProcessorIndex {
		return -1
	}
	return index
}

// DeviceName returns the name that messages give a device: "GPU 2", or "the processor".
func DeviceName(index int, processor bool) string {
	if processor {
		return "the processor"
	}
	return fmt.Sprintf("GPU %d", index)
}

// TotalFrom says where a device's total memory comes from.
type TotalFrom string

// The sources, in the order in which they count: the first that tells the total.
const (
	FromConfiguration TotalFrom = "configuration" // memory in a [[device]]
	FromDriver        TotalFrom = "driver"        // NVML, DRM; of the processor the kernel
	FromProbe         TotalFrom = "probe"         // a process of the daemon's asked CUDA
	FromMachine       TotalFrom = "machine"       // half of the machine's memory, because no source tells
)
