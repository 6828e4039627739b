package daemon

// This file finds devices that appear while the daemon runs: a driver that is installed or loaded late, a new card, a
// new MIG instance. It asks the inventory, and adds the devices to the table with their readers. start.go and
// attach.go call it.

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/daemon/inventory"
	"github.com/gpuarb/gpuarb/internal/procfacts"
	"github.com/gpuarb/gpuarb/ipc"
)

// maxDevices is the largest number of devices that are arbitrated.
const maxDevices = 64

// addInitialDevices adds the devices that exist when the daemon starts.
func (d *Daemon) addInitialDevices() {
	d.addFound(d.inv.Devices())
	if why := d.inv.Why(); why != "" {
		level := slog.LevelInfo
		if !slices.ContainsFunc(d.devices(), isGPU) {
			level = slog.LevelWarn
		}
		d.log.Log(d.ctx, level, "devices", "found", len(d.devices()), "note", why)
	}
}

// addFound adds devices to the table and the arbiter, or replaces those with the same index. It returns the new
// readers, which the caller must start. If no driver reports the total memory of a device, the device counts as
// having half of the machine's memory until a probe has asked CUDA.
func (d *Daemon) addFound(found []inventory.Device) (readers []*reader) {
	now := d.now()
	d.lock()
	defer d.unlock()
	next := table{slices.Clone(d.devices()), maps.Clone(d.readers())}
	if next.readers == nil {
		next.readers = map[int]*reader{}
	}
	for _, dev := range found {
		if len(next.devices) >= maxDevices && next.readers[dev.Index] == nil {
			d.log.Error("there are more devices than gpuarb arbitrates: this one is left out", "device_uuid", dev.UUID, "most", maxDevices)
			continue
		}
		if dev.Total == 0 {
			dev.Total, dev.From = procfacts.Here.MemTotal()/2, accounting.FromMachine
		}
		next.devices = slices.DeleteFunc(next.devices, func(known inventory.Device) bool { return known.Index == dev.Index })
		next.devices = append(next.devices, dev)
		if next.readers[dev.Index] == nil {
			r := newReader(d, dev.Index)
			next.readers[dev.Index] = r
			readers = append(readers, r)
		}
	}
	slices.SortFunc(next.devices, func(a, b inventory.Device) int { return a.Index - b.Index })
	d.known.Store(&next)
	for _, dev := range found {
		if dev, ok := d.deviceByIndex(dev.Index); ok && !d.arb.Lost(dev.Index) { // a lost device is added again by its reader
			d.arb.AddDevice(now, d.deviceOf(dev))
		}
	}
	return readers
}

// lastDevices returns the devices that the last daemon found. If a device hangs at the start, this list makes the
// device known, and the grants on it can be recovered.
func (d *Daemon) lastDevices() (last []inventory.Device) {
	text, err := os.ReadFile(d.paths.devices)
	if err != nil || json.Unmarshal(text, &last) != nil {
		return nil
	}
	return last
}

// keepDevices writes the list of devices to the disk. Several goroutines may call it.
func (d *Daemon) keepDevices() {
	d.writing.Lock()
	defer d.writing.Unlock()
	if slices.Equal(d.devices(), d.lastDevices()) {
		return
	}
	text, err := json.Marshal(d.devices())
	if err == nil {
		err = os.WriteFile(d.paths.devices+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(d.paths.devices+".new", d.paths.devices)
	}
	if err != nil {
		d.log.Warn("the devices cannot be written down: where one hangs as the daemon starts again, it is not known then", "err", err)
	}
}

// probeUnknown asks CUDA for the total memory of the devices for which NVML does not report it. It logs devices that
// CUDA does not report either: they keep half of the machine's memory. A separate process of the daemon asks, because
// the answer of a client cannot be trusted.
func (d *Daemon) probeUnknown() {
	defer d.catchPanic(nil)
	totalUnknown := func(dev inventory.Device) bool { return dev.From == accounting.FromMachine && dev.Vendor == "nvidia" }
	var wanted []inventory.Device
	for _, dev := range d.devices() {
		if totalUnknown(dev) {
			wanted = append(wanted, dev)
		}
	}
	if len(wanted) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(d.ctx, probePatience)
	defer cancel()
	totals, err := d.probe(ctx)
	var told []inventory.Device
	for _, dev := range wanted {
		if total := totals[ipc.UUID(dev.UUIDBytes)]; total > 0 {
			dev.Total, dev.From = total, accounting.FromProbe
			told = append(told, dev)
		} else if !d.stopping() {
			d.log.Warn("neither NVML nor CUDA says how much memory a device has: it counts as having half of the machine's; write memory = \"…\" into its [[device]]",
				"device", dev.Index, "bytes", dev.Total, "err", err)
		}
	}
	if len(told) > 0 && !d.stopping() {
		d.addFound(told)
		d.keepDevices()
	}
}

// startReaders starts the reader of each device, and waits for the first readings, for startPatience at most. Memory
// in use at the start is thus counted from the start, also that of contexts of recovered programs.
func (d *Daemon) startReaders() {
	late := d.after(startPatience)
	for _, r := range d.readers() {
		go r.run(d.ctx)
	}
	probed := background(func() error { d.probeUnknown(); return nil })
	select {
	case <-probed:
	case <-late:
		late = d.after(0)
	case <-d.ctx.Done():
	}
	for _, r := range d.readers() {
		select {
		case <-r.first:
		case <-late:
			d.log.Warn("starting without the figures of every device: one does not answer, or programs there take and free memory all the time")
			return
		case <-d.ctx.Done():
			return
		}
	}
}

const (
	// scanFirst is the time between two scans for devices while there is no GPU; scanEvery applies when there is one.
	scanFirst = 3 * time.Second
	scanEvery = 8 * time.Second
	// scanPause is the pause after a scan that the kernel, or a program with an unknown device, requested.
	scanPause = 500 * time.Millisecond
	// scanPatience is how long a program with an unknown device waits for a scan.
	scanPatience = time.Second
)

// scanDevices scans for devices until ctx ends. Stop does not wait for it, because a driver may hang.
func (d *Daemon) scanDevices(ctx context.Context) {
	defer d.catchPanic(nil)
	go func() {
		defer d.catchPanic(nil)
		if err := d.plugged(ctx, func() { signal(d.scans.wake) }); err != nil {
			d.log.Info("the kernel does not tell when a device comes: it is looked for from time to time", "err", err)
		}
	}()
	for ctx.Err() == nil {
		every := scanEvery
		if !slices.ContainsFunc(d.devices(), isGPU) {
			every = scanFirst
		}
		select {
		case <-ctx.Done():
		case <-d.scans.wake:
			d.scan()
			d.sleep(d.after(scanPause))
		case <-d.after(every):
			if !d.anySuspended() {
				d.scan()
			}
		}
	}
}

// anySuspended reports whether the kernel has suspended a known device, which a scan would wake.
func (d *Daemon) anySuspended() bool {
	return slices.ContainsFunc(d.devices(), func(dev inventory.Device) bool { return d.inv.Suspended(dev.Index) })
}

// scan scans for devices once.
func (d *Daemon) scan() {
	s := &d.scans
	s.mu.Lock()
	over := s.next
	s.next = make(chan struct{})
	s.mu.Unlock()
	if found := d.inv.Scan(); len(found) > 0 && !d.stopping() {
		for _, r := range d.addFound(found) {
			go r.run(d.ctx)
		}
		d.keepDevices()
		d.log.Info("devices came", "found", len(found), "devices", len(d.devices()))
		go d.probeUnknown()
	}
	s.mu.Lock()
	s.last = d.now()
	s.mu.Unlock()
	close(over)
}

// requestScan requests a scan because a program names an unknown device, and waits for its end, scanPatience at most.
// It does nothing if the last scan ended less than scanPatience ago, or if a known GPU is suspended. Programs thus
// cannot cause scans without a pause or keep a GPU awake.
func (d *Daemon) requestScan() {
	s := &d.scans
	s.mu.Lock()
	over, recent := s.next, !s.last.IsZero() && d.now().Sub(s.last) < scanPatience
	s.mu.Unlock()
	if recent || d.anySuspended() {
		return
	}
	signal(s.wake)
	select {
	case <-over:
	case <-d.after(scanPatience):
	case <-d.ctx.Done():
	}
}
