package inventory

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/procfacts"
)

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
	// UUIDBytes is what the vendor's programming interface gives for the device:
	// the parsed UUID for NVIDIA, the sixteen digits as text for AMD, zero for Intel; for the
	// processor the one that [ProcessorUUID] says.
	UUIDBytes [16]byte
	Total     uint64               // bytes of device memory; of the processor, of the machine's; 0: the driver does not say
	From      accounting.TotalFrom // where Total comes from; empty: the driver
	Reserved  uint64               // bytes inside Total that the driver keeps for itself; 0 if it does not say
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
	sysfs   string
	host    *nvmlHost
	closed  atomic.Bool
	tried   map[string]int // by PCI address: how often NVML was initialised again for it; only Scan uses it
	mu      sync.RWMutex   // guards what follows
	devices []Device       // by index
	sources map[int]source // by index
	why     string
}

// Open finds the devices. It does not fail where there is none: Devices is then
// empty and Why says why.
func Open(o Options) *Inventory {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	inv := &Inventory{sysfs: cmp.Or(o.SysfsRoot, "/sys"), host: newNVMLHost(nvml.New()), tried: map[string]int{}, sources: make(map[int]source)}
	var reasons []string
	found, reason := inv.host.open(o.Last)
	inv.add(found)
	reasons = appendReason(reasons, reason)
	found, reason = openDRM(inv.sysfs, inv.hasPCI)
	inv.add(found)
	reasons = appendReason(reasons, reason)
	inv.add(drivers{o.Getenv, openCLFolder, vulkanFolders}.processor(procfacts.Here))
	inv.why = strings.Join(reasons, "; ")
	return inv
}

// found is a device with the source of its readings. A device whose index is anyIndex gets the next free one.
type found struct {
	device Device
	source source
}

const anyIndex = -1

// add adds devices, and returns them with their indices. If another device has the index of a new one, the new one gets the
// next free index.
func (inv *Inventory) add(list []found) (added []Device) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	for _, f := range list {
		if _, taken := inv.sources[f.device.Index]; taken || f.device.Index == anyIndex {
			f.device.Index = inv.nextIndex()
		}
		if f.device.Index >= accounting.MaxGPUs && f.device.Vendor != accounting.VendorCPU {
			continue // beyond the most that a machine can have
		}
		inv.devices = append(inv.devices, f.device)
		inv.sources[f.device.Index] = f.source
		added = append(added, f.device)
	}
	slices.SortFunc(inv.devices, func(a, b Device) int { return cmp.Compare(a.Index, b.Index) })
	return added
}

// hasPCI reports whether a device is known by its PCI address.
func (inv *Inventory) hasPCI(address string) bool {
	return address != "" && inv.has(func(d Device) bool { return d.PCI == address })
}

// known reports whether a device is known by its UUID.
func (inv *Inventory) known(uuid string) bool {
	return inv.has(func(d Device) bool { return d.UUID == uuid })
}

func (inv *Inventory) has(is func(Device) bool) bool {
	inv.mu.RLock()
	defer inv.mu.RUnlock()
	return slices.ContainsFunc(inv.devices, is)
}

// nextIndex returns the index after those of all GPUs. The caller holds the lock.
func (inv *Inventory) nextIndex() int {
	next := 0
	for _, d := range inv.devices {
		if d.Vendor != accounting.VendorCPU {
			next = max(next, d.Index+1)
		}
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
	inv.mu.RLock()
	defer inv.mu.RUnlock()
	return slices.Clone(inv.devices)
}

// Why says, for people, why devices that one might expect are absent; it is empty
// if there is nothing to say.
func (inv *Inventory) Why() string {
	inv.mu.RLock()
	defer inv.mu.RUnlock()
	return inv.why
}

// Close gives the driver's library back, as soon as no call into it is under way;
// it does not wait for one. Read fails afterwards.
func (inv *Inventory) Close() {
	inv.closed.Store(true)
	inv.host.release()
}

// Read polls one device. It may block for as long as the driver does.
//
// A process that is listed as using the device for computing and for graphics
// counts once, with the larger figure. A device that has fallen off the bus gives
// Usage.Lost and no error.
func (inv *Inventory) Read(index int) (Usage, error) {
	inv.mu.RLock()
	src, ok := inv.sources[index]
	inv.mu.RUnlock()
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
