package inventory

// This file translates NVML's answers: descriptions of devices, lists of processes, and error codes. nvmlhost.go has
// the library, nvmlfind.go finds devices, and nvmlread.go reads them.

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// nvmlNeeded lists the required functions; of each list one name suffices. The binding ends the whole process if it
// calls a function that the library lacks.
var nvmlNeeded = [][]string{
	{"nvmlShutdown"},
	{"nvmlErrorString"},
	{"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"},
	{"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"},
	{"nvmlDeviceGetHandleByUUID"},
	{"nvmlDeviceGetUUID"},
}

// nvmlOptional says which optional functions the library has.
type nvmlOptional struct{ name, pci, memory, compute, graphics, mps, reserved, mig, utilisation, limits bool }

// nvmlReason returns, for users, the reason why the library did not start.
func nvmlReason(ret nvml.Return) string {
	switch ret {
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return "NVIDIA: libnvidia-ml.so.1 was not found (no driver installed?)"
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return "NVIDIA: the kernel driver is not loaded"
	case nvml.ERROR_NO_PERMISSION:
		return "NVIDIA: no permission to talk to the kernel driver"
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return "NVIDIA: library and kernel driver are of different versions (an update that waits for a reboot?)"
	}
	return fmt.Sprintf("NVIDIA: NVML did not start: %v (%d)", ret, int(ret))
}

// describeNVML describes a device. It requires only the UUID, and omits other facts that the library does not report.
func describeNVML(handle nvmlDevice, index int, optional nvmlOptional) (Device, error) {
	d := Device{Index: index, Ordinal: index, Vendor: "nvidia"}
	var ret nvml.Return
	if d.UUID, ret = handle.GetUUID(); ret != nvml.SUCCESS {
		return d, fmt.Errorf("its UUID: %w", ret)
	}
	uuid, err := parseUUID(d.UUID)
	if err != nil {
		return d, err
	}
	d.UUIDBytes = uuid
	d.Name = "NVIDIA GPU"
	if optional.name {
		if name, ret := handle.GetName(); ret == nvml.SUCCESS {
			d.Name = name
		} else if isGone(ret) {
			return d, fmt.Errorf("its name: %w", ret)
		}
	}
	if optional.pci {
		if pci, ret := handle.GetPciInfo(); ret == nvml.SUCCESS {
			d.PCI = pciAddress(pci.Domain, pci.Bus, pci.Device)
		} else if isGone(ret) {
			return d, fmt.Errorf("its address: %w", ret)
		}
	}
	return d, describeMemory(&d, handle, optional)
}

// describeMemory adds the size of a device's memory if the library reports it. For a GPU that shares the processor's
// memory (GB10, Jetson), the library answers that the question is not supported.
func describeMemory(d *Device, handle nvmlDevice, optional nvmlOptional) error {
	if optional.memory {
		memory, ret := handle.GetMemoryInfo()
		if isGone(ret) {
			return fmt.Errorf("its memory: %w", ret)
		}
		if ret == nvml.SUCCESS {
			d.Total = memory.Total
		}
	}
	if optional.reserved {
		if v2, ret := handle.GetMemoryInfo_v2(); ret == nvml.SUCCESS && v2.Reserved < v2.Total {
			d.Total, d.Reserved = v2.Total, v2.Reserved
		}
	}
	return nil
}

// pciAddress returns an address in the kernel's spelling in sysfs. NVML knows only function 0.
func pciAddress(domain, bus, device uint32) string {
	return fmt.Sprintf("%04x:%02x:%02x.0", domain, bus, device)
}

// parseUUID parses "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", or the UUID of a MIG instance, which begins with MIG.
func parseUUID(s string) (uuid [16]byte, err error) {
	digits, ok := strings.CutPrefix(s, "GPU-")
	if !ok {
		digits, ok = strings.CutPrefix(s, "MIG-")
	}
	parts := strings.Split(digits, "-")
	lengths := [...]int{8, 4, 4, 4, 12}
	ok = ok && len(parts) == len(lengths)
	for i := 0; ok && i < len(lengths); i++ {
		ok = len(parts[i]) == lengths[i]
	}
	if !ok {
		return uuid, fmt.Errorf("%q is not a device UUID", s)
	}
	if _, err = hex.Decode(uuid[:], []byte(strings.Join(parts, ""))); err != nil {
		return [16]byte{}, fmt.Errorf("%q is not a device UUID: %w", s, err)
	}
	return uuid, nil
}

// nvmlDevice is the set of calls for one device. Tests replace it.
type nvmlDevice interface {
	GetName() (string, nvml.Return)
	GetUUID() (string, nvml.Return)
	GetPciInfo() (nvml.PciInfo, nvml.Return)
	GetMemoryInfo() (nvml.Memory, nvml.Return)
	GetMemoryInfo_v2() (nvml.Memory_v2, nvml.Return)
	GetComputeRunningProcesses() ([]nvml.ProcessInfo, nvml.Return)
	GetGraphicsRunningProcesses() ([]nvml.ProcessInfo, nvml.Return)
	GetMPSComputeRunningProcesses() ([]nvml.ProcessInfo, nvml.Return)
	GetProcessUtilization(since uint64) ([]nvml.ProcessUtilizationSample, nvml.Return)
	GetMemoryLimits_v1(dir string) (nvml.MemoryLimits_v1, nvml.Return)
	SetMemoryLimits_v1(dir string, soft, hard uint64) nvml.Return
}

// errLost means that the device is gone.
var errLost = errors.New("the device is lost")

// isGone reports whether an answer means that the device is gone.
func isGone(ret nvml.Return) bool {
	return ret == nvml.ERROR_GPU_IS_LOST || ret == nvml.ERROR_GPU_NOT_FOUND || ret == nvml.ERROR_RESET_REQUIRED
}

// isUnsupported reports whether an answer means that the library or the device cannot answer this question.
func isUnsupported(ret nvml.Return) bool {
	return ret == nvml.ERROR_NOT_SUPPORTED || ret == nvml.ERROR_FUNCTION_NOT_FOUND || ret == nvml.ERROR_NO_PERMISSION
}

// nvmlError returns an error that names the question; it wraps errLost if the device is gone.
func nvmlError(what string, ret nvml.Return) error {
	switch {
	case ret == nvml.SUCCESS:
		return nil
	case isGone(ret):
		return fmt.Errorf("%s: %w (%w)", what, errLost, ret)
	}
	return fmt.Errorf("%s: %w", what, ret)
}

// processes returns the processes that use a device. The second result reports whether the list and all figures are
// complete.
func (o nvmlOptional) processes(device nvmlDevice) ([]ProcessUsage, bool, error) {
	lists := []struct {
		have bool
		what string
		read func() ([]nvml.ProcessInfo, nvml.Return)
	}{
		{o.compute, "compute processes", device.GetComputeRunningProcesses},
		{o.graphics, "graphics processes", device.GetGraphicsRunningProcesses},
		{o.mps, "MPS processes", device.GetMPSComputeRunningProcesses},
	}
	known := o.compute
	merged := make(map[int]uint64)
	for i, l := range lists {
		if !l.have {
			continue
		}
		infos, ret := l.read()
		if isUnsupported(ret) {
			known = known && i > 0 // without the first list, the compute processes, the result is incomplete
			continue
		}
		if err := nvmlError(l.what, ret); err != nil {
			return nil, false, err
		}
		complete := mergeProcesses(merged, infos)
		known = known && complete
	}
	return sortedUsage(merged), known, nil
}

// mergeProcesses adds one list to merged. A process in several lists keeps its largest figure. In one list a process
// has an entry for each instance of a partitioned device, and these add up. complete reports whether every entry has
// a figure.
func mergeProcesses(merged map[int]uint64, infos []nvml.ProcessInfo) (complete bool) {
	complete = true
	sums := make(map[int]uint64, len(infos))
	for _, p := range infos {
		bytes := p.UsedGpuMemory
		if bytes == math.MaxUint64 { // NVML_VALUE_NOT_AVAILABLE
			complete, bytes = false, 0
		}
		sums[int(p.Pid)] += bytes
	}
	for pid, bytes := range sums {
		merged[pid] = max(merged[pid], bytes)
	}
	return complete
}

// sortedUsage returns the usage sorted by PID.
func sortedUsage(byPID map[int]uint64) []ProcessUsage {
	list := make([]ProcessUsage, 0, len(byPID))
	for pid, bytes := range byPID {
		list = append(list, ProcessUsage{PID: pid, Bytes: bytes})
	}
	slices.SortFunc(list, func(a, b ProcessUsage) int { return a.PID - b.PID })
	return list
}
