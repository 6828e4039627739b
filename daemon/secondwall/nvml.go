package secondwall

// This file reads and writes the limits of NVIDIA's driver. daemon/inventory makes the calls.
//
// The driver keeps these limits itself, or in the kernel's controller if that has them. NVIDIA says that dmem.max must not
// be written past NVML then. A soft limit, a reservation, stays as it was.

import (
	"errors"
	"path/filepath"
)

// Driver is the vendor's driver. It has the calls for one device. Soft limits are in bytes, 0: none; hard limits as Target.Limit.
type Driver interface {
	// Limits returns the limits of the cgroup with this folder, or those of the nearest cgroup around it that has limits.
	// ErrUnsupported: the driver does not have such limits.
	Limits(dir string) (soft, hard uint64, err error)
	SetLimits(dir string, soft, hard uint64) error
}

// ErrUnsupported says that a driver has no limits by cgroup.
var ErrUnsupported = errors.New("the driver has no limits by cgroup: they need release 615 or later, and no MIG")

// driverLimit is the limit of a cgroup in the driver.
type driverLimit struct {
	in     *folder
	driver Driver
}

func (l driverLimit) by() By { return ByDriver }

// read returns own = false if the cgroup around has the same limits. Without limits of its own, the cgroup then has these.
func (l driverLimit) read() (limit uint64, own bool, err error) {
	soft, hard, err := l.driver.Limits(l.in.dir)
	if err != nil {
		return 0, false, err
	}
	return hard, l.isOwn(soft, hard), nil
}

func (l driverLimit) isOwn(soft, hard uint64) bool {
	outerSoft, outerHard, err := l.driver.Limits(filepath.Dir(l.in.dir))
	return err != nil || soft != outerSoft || hard != outerHard
}

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
