package daemon

// This file passes the budgets of cgroups' jobs to package secondwall if driver_limits is on. The package sets them as limits of
// the kernel or of the vendor's driver.
//
// A loop in loops.go calls it each second. That loop is woken at once, by bind.go, jobs.go and lock.go, when a job was opened or closed, or
// a context was granted. The results are shown in snapshots (snapshots.go).
//
// A driver may hang. So the work for each device runs in a goroutine of its own, which Stop does not wait for. No second goroutine
// begins for a device before the first one has ended.

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/daemon/inventory"
	"github.com/gpuarb/gpuarb/daemon/secondwall"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/statefile"
)

// driverPatience is the time after which a device that has not answered is shown as a failure. The goroutine for that device continues.
const driverPatience = 5 * time.Second

// settleDriverLimits starts the work for each device, and returns the time of the next call. If driver_limits is off, the work is to
// put back the limits that were set while it was on, perhaps by an earlier daemon. After that the function does nothing.
func (d *Daemon) settleDriverLimits() <-chan time.Time {
	again := d.after(readEvery)
	on := d.config.Load().DriverLimits
	if !on && d.driver.walls == nil && !statefile.HasWalls(d.paths.state) {
		return again
	}
	d.openWalls()
	roots := d.cgroupRoots()
	d.lock()
	defer d.unlock()
	if d.stopping() || d.driver.walls == nil {
		return again
	}
	rooms := map[int][]arbiter.CgroupRoom{}
	if on {
		for _, room := range d.arb.CgroupRooms() {
			rooms[room.Device] = append(rooms[room.Device], room)
		}
	} else if d.driver.walls.Empty() {
		clear(d.driver.on)
		clear(d.driver.of)
		return again
	}
	for _, dev := range d.devices() {
		began, busy := d.driver.busy[dev.Index]
		switch {
		case busy && d.now().Sub(began) >= driverPatience:
			d.driver.on[dev.Index] = driverDevice{fail: fmt.Sprintf("it has not answered for %d s", int(d.now().Sub(began)/time.Second))}
		case !busy && dev.Vendor != accounting.VendorCPU && d.mustSettleLocked(dev, rooms[dev.Index]):
			d.driver.busy[dev.Index] = d.now()
			go d.settleDevice(dev, roots, rooms[dev.Index])
		}
	}
	return again
}

// mustSettleLocked reports whether there is work for a device: it has a limit or gets one, or its abilities are not known yet. Other
// devices are left alone, so that they can sleep.
func (d *Daemon) mustSettleLocked(dev inventory.Device, rooms []arbiter.CgroupRoom) bool {
	_, asked := d.driver.on[dev.Index]
	return len(rooms) > 0 || !asked || d.driver.walls.Has(d.wallDevice(dev))
}

// openWalls opens the file with the records of original limits, unless it is open. Only the goroutine of settleDriverLimits calls it, so
// that it may read d.driver.walls without the lock.
func (d *Daemon) openWalls() {
	if d.driver.walls != nil {
		return
	}
	records, aside, err := statefile.OpenWalls(d.paths.state)
	d.lock()
	defer d.unlock()
	if err != nil && d.driver.broken == nil {
		d.log.Error("no limit is set in the kernel or a driver, because the original limits cannot be recorded", "err", err)
	}
	if d.driver.broken = err; err != nil {
		return
	}
	if aside != nil {
		d.log.Warn("limits that the last daemon set in the kernel or a driver stay: the file of the original limits is lost", "err", aside)
	}
	d.driver.walls = secondwall.New(records)
}

// cgroupRoots returns the mount points of the cgroup v2 hierarchies: the kernel and the driver have no limits in those of v1.
func (d *Daemon) cgroupRoots() []string {
	if d.paths.sysfs != "" {
		return []string{filepath.Join(d.paths.sysfs, "fs", "cgroup")}
	}
	return hierarchiesOf("cgroup2")
}

// settleDevice sets the limits of one device as rooms say, and stores the results. It runs without the lock while a driver may hang.
func (d *Daemon) settleDevice(dev inventory.Device, roots []string, rooms []arbiter.CgroupRoom) {
	defer d.catchPanic(nil)
	targets := make([]secondwall.Target, len(rooms))
	for i, room := range rooms {
		targets[i] = secondwall.Target{Path: room.Cgroup, Limit: wallOf(room.Bytes, dev.Total)}
	}
	by, results, why := d.driver.walls.Settle(d.ctx, d.wallDevice(dev), roots, targets)
	d.lock()
	defer d.unlock()
	delete(d.driver.busy, dev.Index)
	if !d.stopping() {
		d.noteDriverLimitsLocked(dev.Index, rooms, by, why, results)
	}
}

// wallDevice converts a device for package secondwall.
func (d *Daemon) wallDevice(dev inventory.Device) secondwall.Device {
	device := secondwall.Device{UUID: dev.UUIDBytes, PCI: dev.PCI}
	if dev.Vendor == "nvidia" {
		device.Driver = vendorDriver{d.inv, dev.Index}
	}
	return device
}

// wallOf returns the limit for a number of bytes, rounded up, on a device with total bytes (0: unknown). A limit of the whole device
// becomes no limit.
func wallOf(bytes accounting.Bytes, total uint64) uint64 {
	limit := uint64(bytes.Plus(secondwall.Granule-1)) / secondwall.Granule * secondwall.Granule
	if total != 0 && limit >= total {
		return secondwall.NoLimit
	}
	return limit
}

// vendorDriver passes the calls of package secondwall for one device to the inventory.
type vendorDriver struct {
	machine machine
	index   int
}

func (v vendorDriver) Limits(dir string) (soft, hard uint64, err error) {
	soft, hard, err = v.machine.MemoryLimits(v.index, dir)
	if errors.Is(err, inventory.ErrNoMemoryLimits) {
		err = secondwall.ErrUnsupported
	}
	return soft, hard, err
}

func (v vendorDriver) SetLimits(dir string, soft, hard uint64) error {
	return v.machine.SetMemoryLimits(v.index, dir, soft, hard)
}

// noteDriverLimitsLocked replaces the stored results of a device. results has the results for rooms in the same order, and then the
// limits that could not be put back. A failure becomes an event when it begins, and when its reason changes.
func (d *Daemon) noteDriverLimitsLocked(device int, rooms []arbiter.CgroupRoom, by secondwall.By, why error, results []secondwall.Result) {
	is := driverDevice{by: by, fail: oneLine(why)}
	now := map[wallKey]secondwall.Result{}
	for i, r := range results {
		job := arbiter.JobID(0)
		if i < len(rooms) {
			job = rooms[i].Job
		} else {
			is.fail = cmp.Or(is.fail, fmt.Sprintf("cgroup %s: %v", r.Path, r.Err))
		}
		at := wallKey{r.Path, device}
		now[at] = r
		if r.Err != nil && !r.Absent && oneLine(r.Err) != oneLine(d.driver.of[at].Err) {
			d.arb.NoWall(d.now(), job, r.Path, device, oneLine(r.Err))
		}
	}
	for at := range d.driver.of {
		if at.device == device {
			delete(d.driver.of, at)
		}
	}
	for at, r := range now {
		d.driver.of[at] = r
	}
	d.driver.on[device] = is
}

// addDriverLimitsLocked adds to a snapshot whether the library alone, the kernel or the driver holds the budgets of cgroups' jobs.
func (d *Daemon) addDriverLimitsLocked(s *figures.Snapshot) {
	on := d.config.Load().DriverLimits
	for i := range s.Devices {
		if dev := &s.Devices[i]; dev.IsGPU() {
			dev.DriverLimits, dev.DriverLimitsFail = d.driverDeviceLocked(dev.Index, on)
		}
	}
	for i := range s.Jobs {
		if j := &s.Jobs[i]; j.Bound != "" {
			for k := range j.Devices {
				d.addJobLimitLocked(j.Bound, &j.Devices[k], on)
			}
		}
	}
}

// driverDeviceLocked returns whether the kernel or the driver can hold limits on a device, and what fails there; "": nothing.
func (d *Daemon) driverDeviceLocked(index int, on bool) (who figures.DriverLimits, fail string) {
	is, known := d.driver.on[index]
	switch {
	case !on && is.fail == "", !known && d.driver.broken == nil && !on:
		return figures.DriverLimitsOff, ""
	case !on:
		return figures.DriverLimitsOff, is.fail
	case d.driver.broken != nil:
		return figures.DriverLimitsNone, "the original limits cannot be recorded: " + oneLine(d.driver.broken)
	case !known:
		return figures.DriverLimitsNone, "it has not answered yet"
	case is.by == secondwall.ByKernel:
		return figures.DriverLimitsKernel, is.fail
	case is.by == secondwall.ByDriver:
		return figures.DriverLimitsDriver, is.fail
	}
	return figures.DriverLimitsNone, is.fail
}

// addJobLimitLocked adds to the state of a cgroup's job on one device whether the library alone, the kernel or the driver holds the
// budget, and the limit in force.
func (d *Daemon) addJobLimitLocked(cgroup string, to *figures.JobDeviceState, on bool) {
	to.HeldBy = figures.HeldByLibrary
	r, known := d.driver.of[wallKey{cgroup, to.Device}]
	if !on || !known {
		return
	}
	switch r.By {
	case secondwall.ByKernel:
		to.HeldBy, to.DriverMax = figures.HeldByKernel, accounting.Bytes(r.Limit)
	case secondwall.ByDriver:
		to.HeldBy, to.DriverMax = figures.HeldByDriver, accounting.Bytes(r.Limit)
	}
	to.DriverFail = oneLine(r.Err)
}

// oneLine returns the text of an error without line breaks; "" for nil.
func oneLine(err error) string {
	if err == nil {
		return ""
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}
