package daemon

// This file has the interface to the machine: devices, processes, clocks, descriptors. Tests replace it; start.go
// creates the real one.

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/daemon/inventory"
	"github.com/gpuarb/gpuarb/internal/procfacts"
	"github.com/gpuarb/gpuarb/ipc"
)

// machine answers questions about devices and processes. It is a realMachine except in tests.
type machine interface {
	Devices() []inventory.Device
	Why() string
	Read(index int) (inventory.Usage, error)
	Utilisation(index int) map[int]int
	Scan() []inventory.Device
	Suspended(index int) bool
	MemoryLimits(index int, dir string) (soft, hard uint64, err error)
	SetMemoryLimits(index int, dir string, soft, hard uint64) error
	Facts(pid int) (procfacts.Facts, error)
	FactsOf(p procfacts.Started, lives func() bool) (procfacts.Facts, error)
	UserName(uid uint32) string
	PIDs() ([]int, error)
	StartTicks(pid int) (uint64, error)
	IsMapped(pid int, inode uint64, name string) (bool, error)
	TaskOwner(tid uint32) (pid int, ok bool)
	Descends(pid, ancestor int) bool
	Variables(pid int, names ...string) map[string]string
	HasMapped(pid int, name string) (mapped, known bool)
	Parents(pid int) []procfacts.Started
	Eldest(folder string) (procfacts.Started, bool)
	WithEnviron(variables map[string]uint32) map[string]procfacts.Started
	Close()
}

type realMachine struct {
	*inventory.Inventory
	*procfacts.Reader
}

// clock has the daemon's time sources. All three advance evenly while the machine is awake and stop while it sleeps.
// Setting the system clock does not affect differences between two times, although printed times may jump.
type clock struct {
	now    func() time.Time
	after  func(time.Duration) <-chan time.Time
	uptime func() time.Duration // uptime without sleep; comparable between daemons until a reboot
}

// bootTime converts t to the uptime at t, which another daemon can read because no user can set that clock.
func (c clock) bootTime(t time.Time) int64 { return int64(c.uptime() - c.now().Sub(t)) }

// fromBootTime is the inverse of bootTime.
func (c clock) fromBootTime(at int64) time.Time {
	return c.now().Add(-max(c.uptime()-time.Duration(at), 0))
}

// parts are the components of a daemon that a test may replace.
type parts struct {
	clock
	inventory func() machine
	plugged   func(ctx context.Context, changed func()) error        // calls changed when the kernel says that a device may have come
	probe     func(ctx context.Context) (map[ipc.UUID]uint64, error) // returns the total memory of devices that CUDA sees
	listen    func() (*ipc.Listener, error)
}

// awake returns how long the machine has been up, without the time in which it slept.
func awake() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return time.Duration(ts.Nano())
}

// monotonicMillis returns the time in lease pages, in milliseconds.
func monotonicMillis() uint64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now) // cannot fail
	return uint64(now.Nano() / int64(time.Millisecond))
}

func closeFD(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd)
	}
}
