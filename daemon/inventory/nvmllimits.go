package inventory

// This file reads and sets the limits of device memory that NVIDIA's driver has for cgroups, from release 615 on.
// daemon/driverlimits.go calls it; nvmlhost.go guards the calls.

import (
	"errors"
	"fmt"
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// ErrNoMemoryLimits says that a device has no limits by cgroup: its library is older, it is a MIG instance, or it is of
// another vendor.
var ErrNoMemoryLimits = errors.New("the device has no limits by cgroup")

// noMemoryLimit is the hard limit that NVML returns for a cgroup without one (NVML_DEVICE_MEMORY_LIMIT_MAX).
const noMemoryLimit = math.MaxUint64

// MemoryLimits returns the soft and the hard limit of a cgroup on a device, in bytes; 0 and [math.MaxUint64]: none. dir is the
// cgroup's folder. A cgroup without limits of its own has those of the nearest one around it. It may block as long as the driver does.
func (inv *Inventory) MemoryLimits(index int, dir string) (soft, hard uint64, err error) {
	err = inv.withLimits(index, func(d nvmlDevice) error {
		is, ret := d.GetMemoryLimits_v1(dir)
		switch {
		case ret == nvml.ERROR_NOT_FOUND, isUnsupported(ret):
			// The driver's own table answers both for a cgroup without limits. If it has no limits at all, setting one fails.
			soft, hard = 0, noMemoryLimit
			return nil
		case ret != nvml.SUCCESS:
			return nvmlError("the memory limits of "+dir, ret)
		}
		soft, hard = is.SoftLimit, is.HardLimit
		return nil
	})
	return soft, hard, err
}

// SetMemoryLimits sets both limits of a cgroup on a device, as MemoryLimits returns them.
func (inv *Inventory) SetMemoryLimits(index int, dir string, soft, hard uint64) error {
	return inv.withLimits(index, func(d nvmlDevice) error {
		return nvmlError(fmt.Sprintf("setting the memory limits of %s to %d (soft) and %d (hard)", dir, soft, hard), d.SetMemoryLimits_v1(dir, soft, hard))
	})
}

// withLimits calls f for a device of a library that has the calls for limits.
func (inv *Inventory) withLimits(index int, f func(nvmlDevice) error) error {
	inv.mu.RLock()
	src, isNVML := inv.sources[index].(*nvmlSource)
	inv.mu.RUnlock()
	if inv.closed.Load() {
		return errDown
	}
	if !isNVML || inv.has(func(d Device) bool { return d.Index == index && d.Parent != "" }) {
		return ErrNoMemoryLimits
	}
	device, err := src.host.beginDeviceCall(src.uuid)
	if err != nil {
		return err
	}
	defer src.host.endCall()
	if !src.host.optional.limits {
		return ErrNoMemoryLimits
	}
	return f(device)
}
