package inventory

// This file has the set of devices and the readings of each. The daemon opens it at its start; scan.go adds devices
// later; nvmlfind.go, drm.go and cpu.go find devices.

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
	"github.com/gpuarb/gpuarb/internal/procfacts"
)

// Options says where to look for devices. The zero value is the running machine.
type Options struct {
	SysfsRoot string // instead of /sys
	// Getenv reads the environment variables that name drivers for the processor; nil: os.Getenv.
	Getenv func(name string) string
	// Last has the devices of an earlier run. A device that does not answer is taken from there, and is read as soon
	// as it answers.
	Last []Device
}

// Inventory is the set of devices. Its methods are safe for concurrent use, except Scan.
type Inventory struct {
	sysfs   string
	host    *nvmlHost
	closed  atomic.Bool
	tried   map[string]int // by PCI address: number of NVML initialisations for it; only Scan uses it
	mu      sync.RWMutex   // guards the fields below
	devices []Device       // sorted by index
	sources map[int]source // by index
	why     string         // see Why
}

// Open finds the devices. It never fails: without devices, Devices is empty and Why has the reason.
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

// add adds devices and returns them with their indices. If another device has the index of a new one, the new device
// gets the next free index.
func (inv *Inventory) add(list []foundDevice) (added []Device) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	for _, f := range list {
		if _, taken := inv.sources[f.device.Index]; taken || f.device.Index == anyIndex {
			f.device.Index = inv.nextIndex()
		}
		if f.device.Index >= accounting.MaxGPUs && f.device.Vendor != accounting.VendorCPU {
			continue // more GPUs than gpuarb supports
		}
		inv.devices = append(inv.devices, f.device)
		inv.sources[f.device.Index] = f.source
		added = append(added, f.device)
	}
	slices.SortFunc(inv.devices, func(a, b Device) int { return cmp.Compare(a.Index, b.Index) })
	return added
}

// hasPCI reports whether the set has a device with a PCI address.
func (inv *Inventory) hasPCI(address string) bool {
	return address != "" && inv.has(func(d Device) bool { return d.PCI == address })
}

// known reports whether the set has a device with a UUID.
func (inv *Inventory) known(uuid string) bool {
	return inv.has(func(d Device) bool { return d.UUID == uuid })
}

// has reports whether the set has a device for which is returns true.
func (inv *Inventory) has(is func(Device) bool) bool {
	inv.mu.RLock()
	defer inv.mu.RUnlock()
	return slices.ContainsFunc(inv.devices, is)
}

// nextIndex returns the index after those of all GPUs. The caller holds mu.
func (inv *Inventory) nextIndex() int {
	next := 0
	for _, d := range inv.devices {
		if d.Vendor != accounting.VendorCPU {
			next = max(next, d.Index+1)
		}
	}
	return next
}

// Devices returns the devices, sorted by index. The caller owns the slice.
func (inv *Inventory) Devices() []Device {
	inv.mu.RLock()
	defer inv.mu.RUnlock()
	return slices.Clone(inv.devices)
}

// Why returns, for users, the reasons why expected devices are absent; empty: none.
func (inv *Inventory) Why() string {
	inv.mu.RLock()
	defer inv.mu.RUnlock()
	return inv.why
}

// Close shuts down the driver's library once no call into it is under way; Close itself does not wait for that. Read
// fails afterwards.
func (inv *Inventory) Close() {
	inv.closed.Store(true)
	inv.host.release()
}

// Utilisation returns the share of a device's processors that processes used of late, in percent, by PID. A process
// that is missing used none. nil: the device does not tell. It may block as long as the driver does.
func (inv *Inventory) Utilisation(index int) map[int]int {
	inv.mu.RLock()
	src := inv.sources[index]
	inv.mu.RUnlock()
	if src == nil || inv.closed.Load() {
		return nil
	}
	return src.utilisation()
}

// Read takes a reading of one device. It may block as long as the driver does.
//
// A process that uses the device both for computing and for graphics appears once, with the larger figure. A device
// that has fallen off the bus gives Usage.Lost and no error.
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
