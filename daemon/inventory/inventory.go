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
	"github.com/gpuarb/gpuarb/internal/procfacts"
)

// Options says where to look. The zero value is the running machine.
type Options struct {
	SysfsRoot string // instead of /sys
	// Getenv is the environment in which drivers that compute on the processor are looked for; nil: os.Getenv.
	Getenv func(name string) string
	// Last is what Devices said the last time. A device that does not answer is taken from
	// there, and read when it does.
	Last []Device
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
