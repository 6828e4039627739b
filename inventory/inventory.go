package inventory

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpuarb/gpuarb/procfacts"
)

// Device is one GPU, or the processor, as it was found. Nothing in it changes while the inventory is open.
type Device struct {
	Index  int    // unique on this machine: NVIDIA first, by NVML's index, then AMD, then Intel; the processor has [accounting.ProcessorIndex]
	Vendor string // nvidia, amd, intel or cpu
	// Ordinal is its number among the vendor's devices, as the vendor's own variable
	// takes it (CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, ZE_AFFINITY_MASK).
	Ordinal int
	Name    string
	UUID    string // "GPU-…" as the vendor's own tools spell it, "CPU-…" for the processor; empty if the device has none
	PCI     string // domain:bus:device.function, lower case
	// UUIDBytes is what the vendor's programming interface gives for the device:
	// the parsed UUID for NVIDIA, the sixteen digits as text for AMD, zero for Intel; for the
	// processor the one that [ProcessorUUID] says.
	UUIDBytes [16]byte
	Total     uint64 // bytes of device memory; of the processor, of the machine's
	Reserved  uint64 // bytes inside Total that the driver keeps for itself; 0 if it does not say
}

// ProcessUsage is what one process holds on one device, as the driver says.
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

// Options says where to look. The zero value is the running machine.
type Options struct {
	SysfsRoot string // instead of /sys
	// Getenv is the environment in which drivers that compute on the processor are looked for; nil: os.Getenv.
	Getenv func(name string) string
	// Last is what Devices said the last time. A device that does not answer is taken from
	// there, and read when it does.
	Last []Device
}

// source reads one device. Its methods are safe for concurrent use.
type source interface {
	usage() (Usage, error)
}

// Inventory is the set of devices.
// Its methods are safe for concurrent use.
type Inventory struct {
	devices []Device
	sources map[int]source // by index
	why     string
	release func() // gives the driver's library back
	closed  atomic.Bool
}

// Open finds the devices. It does not fail where there is none: Devices is then
// empty and Why says why.
func Open(o Options) *Inventory {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	host := newNVMLHost(nvml.New())
	inv := &Inventory{sources: make(map[int]source), release: host.release}
	var reasons []string
	found, reason := host.open(o.Last)
	inv.add(found)
	reasons = appendReason(reasons, reason)
	found, reason = openDRM(cmp.Or(o.SysfsRoot, "/sys"), inv.hasPCI, inv.nextIndex())
	inv.add(found)
	reasons = appendReason(reasons, reason)
	inv.add(drivers{o.Getenv, openCLFolder, vulkanFolders}.processor(procfacts.Here))
	inv.why = strings.Join(reasons, "; ")
	return inv
}

// found is a device with the way to read it.
type found struct {
	device Device
	source source
}

func (inv *Inventory) add(list []found) {
	for _, f := range list {
		inv.devices = append(inv.devices, f.device)
		inv.sources[f.device.Index] = f.source
	}
}

func (inv *Inventory) hasPCI(address string) bool {
	return slices.ContainsFunc(inv.devices, func(d Device) bool { return d.PCI == address })
}

func (inv *Inventory) nextIndex() int {
	next := 0
	for _, d := range inv.devices {
		next = max(next, d.Index+1)
	}
	return next
}

func appendReason(reasons []string, reason string) []string {
	if reason == "" {
		return reasons
	}
	return append(reasons, reason)
}

// Devices returns the devices by index. The slice is the caller's.
func (inv *Inventory) Devices() []Device {
	return slices.Clone(inv.devices)
}

// Why says, for people, why devices that one might expect are absent; it is empty
// if there is nothing to say.
func (inv *Inventory) Why() string { return inv.why }

// Close gives the driver's library back, as soon as no call into it is under way;
// it does not wait for one. Read fails afterwards.
func (inv *Inventory) Close() {
	inv.closed.Store(true)
	inv.release()
}

// Read polls one device. It may block for as long as the driver does.
//
// A process that is listed as using the device for computing and for graphics
// counts once, with the larger figure. A device that has fallen off the bus gives
// Usage.Lost and no error.
func (inv *Inventory) Read(index int) (Usage, error) {
	src, ok := inv.sources[index]
	switch {
	case !ok:
		return Usage{}, fmt.Errorf("device %d: no such device", index)
	case inv.closed.Load():
		return Usage{}, fmt.Errorf("device %d: the inventory is closed", index)
	}
	u, err := src.usage()
	if err != nil {
		return Usage{}, fmt.Errorf("device %d: %w", index, err)
	}
	return u, nil
}
