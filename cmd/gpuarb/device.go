package main

// This file finds devices by the names that users give them. choosedevice.go, limittarget.go and
// visible.go use it.

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/gpuarb/gpuarb/ipc"
)

// anyDevice is the value of --device that asks for any device that is free.
const anyDevice = "any"

// emptiestDevice is the value of --device that asks for the device with the most free memory.
const emptiestDevice = "emptiest"

// processorDevice is the value of --device that names the processor.
const processorDevice = accounting.VendorCPU

// uuidPrefix begins the UUIDs of NVIDIA devices. Users may leave it out.
const uuidPrefix = "gpu-"

// findDevice returns the device that has the name: an index, a UUID or the beginning of a UUID, a
// PCI address, or "cpu" for the processor.
func findDevice(devices []figures.DeviceState, name string) (figures.DeviceState, error) {
	if strings.EqualFold(name, processorDevice) {
		if i := slices.IndexFunc(devices, func(d figures.DeviceState) bool { return !d.IsGPU() }); i >= 0 {
			return devices[i], nil
		}
		// Snapshots leave the processor out while nothing uses it; the daemon knows whether it is a
		// device.
		return figures.DeviceState{Index: accounting.ProcessorIndex, Vendor: accounting.VendorCPU}, nil
	}
	if len(figures.GPUs(devices)) == 0 {
		return figures.DeviceState{}, noGPU(name)
	}
	found := filter(devices, func(d figures.DeviceState) bool { return isNamed(d, name) })
	switch {
	case len(found) == 0:
		return figures.DeviceState{}, fmt.Errorf("there is no device %q; there are %s", name, report.ListDevices(devices))
	case len(found) > 1:
		return figures.DeviceState{}, fmt.Errorf("device %q is not clear; it may be %s", name, report.ListDevices(found))
	}
	return found[0], nil
}

// noGPU returns the error for a device that was named on a machine without a GPU.
func noGPU(name string) error {
	return fmt.Errorf("device %q: the daemon knows no GPU on this machine; `gpuarb doctor` says why", name)
}

func isNamed(device figures.DeviceState, name string) bool {
	if index, err := strconv.Atoi(name); err == nil {
		return device.Index == index && device.IsGPU()
	}
	if strings.ContainsRune(name, ':') {
		return normalPCI(device.PCI) == normalPCI(name)
	}
	uuid, wanted := strings.ToLower(device.UUID), strings.ToLower(name)
	return strings.HasPrefix(uuid, wanted) || device.IsGPU() && strings.HasPrefix(strings.TrimPrefix(uuid, uuidPrefix), wanted)
}

// ruleDevice returns a device in the form that the match.* keys of the configuration use.
func ruleDevice(d figures.DeviceState) rules.Device {
	return rules.Device{Index: d.Index, Vendor: d.Vendor, Name: d.Name, UUID: d.UUID, PCI: d.PCI, Total: d.Total}
}

// normalPCI returns a PCI address without the leading zeros of its domain. Tools write the domain
// with eight digits, with four digits, or not at all.
func normalPCI(address string) string {
	address = strings.ToLower(address)
	if strings.Count(address, ":") == 1 {
		return ":" + address
	}
	return strings.TrimLeft(address, "0")
}

func setDevices(request *ipc.JobOpenRequest, devices []figures.DeviceState) {
	if len(devices) > len(request.Device) {
		devices = devices[:len(request.Device)]
	}
	for i, device := range devices {
		if request.Device[i] = uint32(device.Index); !device.IsGPU() {
			request.Flags |= ipc.JobProcessor
		}
	}
	request.Devices = uint32(len(devices))
}

func filter[T any](all []T, keep func(T) bool) (kept []T) {
	for _, x := range all {
		if keep(x) {
			kept = append(kept, x)
		}
	}
	return kept
}

func contains(devices []figures.DeviceState, device figures.DeviceState) bool {
	return slices.ContainsFunc(devices, func(d figures.DeviceState) bool { return d.Index == device.Index })
}
