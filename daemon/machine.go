package daemon

// This file says what the daemon needs of the machine: devices, processes, clocks, descriptors. A test puts other parts in their place;
// start.go makes the real ones.

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/daemon/inventory"
	"github.com/gpuarb/gpuarb/internal/procfacts"
	"github.com/gpuarb/gpuarb/ipc"
)

// machine is what the daemon asks about devices and processes: a realMachine, but in tests.
type machine interface {
	Devices() []inventory.Device
	Why() string
	Read(index int) (inventory.Usage, error)
	Scan() []inventory.Device
	Suspended(index int) bool
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

// clock is the time that the daemon goes by. All three go on evenly while the machine is
// awake and stand still while it sleeps, whatever somebody sets its clock to: what a time
// of now says to people may jump, the difference of two does not.
type clock struct {
	now    func() time.Time
	after  func(time.Duration) <-chan time.Time
	uptime func() time.Duration // means the same to the next daemon, until the machine is started again
}

// bootTime converts t to the time since the machine's start, by a clock that cannot be set, so that another daemon can read it.
func (c clock) bootTime(t time.Time) int64 { return int64(c.uptime() - c.now().Sub(t)) }

// fromBootTime is the inverse of bootTime.
func (c clock) fromBootTime(at int64) time.Time {
	return c.now().Add(-max(c.uptime()-time.Duration(at), 0))
}

// parts are what the daemon is made of that a test may put something else in the place of.
type parts struct {
	clock
	inventory func() machine
	plugged   func(ctx context.Context, changed func()) error        // calls changed when the kernel says that a device may have come
	probe     func(ctx context.Context) (map[ipc.UUID]uint64, error) // returns the total memory of devices that CUDA sees
	listen    func() (*ipc.Listener, error)
}

// awake is how long the machine has been up, without the time that it slept.
func awake() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return time.Duration(ts.Nano())
}

// monotonicMillis is the time that pages show.
func monotonicMillis() uint64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now) // which cannot fail
	return uint64(now.Nano() / int64(time.Millisecond))
}

func closeFD(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd)
	}
}
