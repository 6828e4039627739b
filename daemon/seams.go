package daemon

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/inventory"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/procfacts"
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

// parts are what the daemon is made of that a test may put something else in the place of.
type parts struct {
	clock
	inventory func() machine
	plugged   func(ctx context.Context, changed func()) error        // calls changed when the kernel says that a device may have come
	probe     func(ctx context.Context) (map[ipc.UUID]uint64, error) // returns the total memory of devices that CUDA sees
	listen    func() (*ipc.Listener, error)
}

// realParts are those of a daemon at work.
func (d *Daemon) realParts() parts {
	return parts{
		clock: clock{time.Now, time.After, awake},
		inventory: func() machine {
			found := inventory.Open(inventory.Options{SysfsRoot: d.paths.sysfs, Last: d.lastDevices()})
			return realMachine{found, procfacts.NewReader()}
		},
		plugged: inventory.WatchDevices,
		probe:   probeMemory,
		listen:  d.openSocket,
	}
}

// awake is how long the machine has been up, without the time that it slept.
func awake() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return time.Duration(ts.Nano())
}
