package secondwall

// This file reads and writes the limits of NVIDIA's driver, through an interface. daemon/inventory makes the calls of NVML behind it.
//
// The driver keeps these limits itself, or in the kernel's controller if the kernel has that. In the second case dmem.max must be
// written by the driver alone, as NVIDIA's documentation demands. This package sets hard limits. The soft limit of a cgroup, which is
// a reservation, stays as it was.

import (
	"errors"
	"path/filepath"
)

// Driver has the calls of the vendor's driver for one device. Soft limits are in bytes, 0: none. Hard limits are in bytes, NoLimit:
// none.
type Driver interface {
	// Limits returns the limits of the cgroup with this folder, or those of the nearest cgroup around it that has limits.
	// ErrUnsupported: the driver does not have such limits.
	Limits(dir string) (soft, hard uint64, err error)
	SetLimits(dir string, soft, hard uint64) error
}

// ErrUnsupported says that a driver has no limits by cgroup.
var ErrUnsupported = errors.New("the driver has no limits by cgroup: they need release 615 or later, and no MIG")

// driverLimit is the hard limit of a cgroup in the driver.
type driverLimit struct {
	in     *folder
	driver Driver
}

func (l driverLimit) by() By { return ByDriver }

// read returns the hard limit. For a cgroup without limits of its own, the driver returns those of a cgroup around it. So if the parent
// has the same limits, read takes them for inherited, and returns own = false.
func (l driverLimit) read() (limit uint64, own bool, err error) {
	soft, hard, err := l.driver.Limits(l.in.dir)
	if err != nil {
		return 0, false, err
	}
	return hard, l.isOwn(soft, hard), nil
}

// isOwn reports whether a cgroup's limits differ from those of its parent. It returns true if the parent's cannot be read.
func (l driverLimit) isOwn(soft, hard uint64) bool {
	outerSoft, outerHard, err := l.driver.Limits(filepath.Dir(l.in.dir))
	return err != nil || soft != outerSoft || hard != outerHard
}

// write sets the hard limit. It keeps the cgroup's own soft limit, and sets none if the cgroup only inherits a soft limit.
func (l driverLimit) write(limit uint64) error {
	soft, hard, err := l.driver.Limits(l.in.dir)
	if err != nil {
		return err
	}
	if !l.isOwn(soft, hard) {
		soft = 0
	}
	return l.driver.SetLimits(l.in.dir, soft, limit)
}
