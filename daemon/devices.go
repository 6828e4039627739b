package daemon

import (
	"encoding/json"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/inventory"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/procfacts"
)

// mostDevices is how many devices are arbitrated at most.
const mostDevices = 64

// table is the devices that are known, with the reader of each. It never changes: a new table takes its place.
type table struct {
	devices []inventory.Device
	readers map[int]*reader // by device
}

func (d *Daemon) devices() []inventory.Device { return d.known.Load().devices }

func (d *Daemon) readers() map[int]*reader { return d.known.Load().readers }

// addDevices adds the devices that there are when the daemon starts.
func (d *Daemon) addDevices() {
	d.meet(d.inv.Devices())
	if why := d.inv.Why(); why != "" {
		level := slog.LevelInfo
		if !slices.ContainsFunc(d.devices(), isGPU) {
			level = slog.LevelWarn
		}
		d.log.Log(d.ctx, level, "devices", "found", len(d.devices()), "note", why)
	}
}

// meet adds devices to the table and the arbiter, or replaces those with the same index, and returns the readers that it made,
// which the caller starts. A device whose total memory no driver tells counts as having half of the machine's, until a probe
// has asked CUDA.
func (d *Daemon) meet(found []inventory.Device) (readers []*reader) {
	now := d.now()
	d.lock()
	defer d.unlock()
	next := table{slices.Clone(d.devices()), maps.Clone(d.readers())}
	if next.readers == nil {
		next.readers = map[int]*reader{}
	}
	for _, dev := range found {
		if len(next.devices) >= mostDevices && next.readers[dev.Index] == nil {
			d.log.Error("there are more devices than gpuarb arbitrates: this one is left out", "device_uuid", dev.UUID, "most", mostDevices)
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
		if dev, ok := d.deviceByIndex(dev.Index); ok && !d.arb.Lost(dev.Index) { // a lost one comes back when its reader says so
			d.arb.AddDevice(now, d.deviceOf(dev))
		}
	}
	return readers
}

// deviceOf is a device as the arbiter takes it.
func (d *Daemon) deviceOf(dev inventory.Device) rules.Device {
	of := rules.Device{Index: dev.Index, Vendor: dev.Vendor, Name: dev.Name,
		UUID: dev.UUID, PCI: dev.PCI, Total: usable(dev), From: dev.From}
	if parent, ok := d.device(func(p *inventory.Device) bool { return dev.Parent != "" && p.UUID == dev.Parent }); ok {
		of.Parent = &parent.Index
	}
	return of
}

func isGPU(dev inventory.Device) bool { return dev.Vendor != accounting.VendorCPU }

// usable is what programs can have of a device: a driver may keep a part of it,
// which its own total counts and CUDA's does not.
func usable(dev inventory.Device) accounting.Bytes {
	return accounting.Bytes(dev.Total - min(dev.Reserved, dev.Total))
}

// deviceByUUID finds a device. One without a UUID cannot be asked for, only shown.
func (d *Daemon) deviceByUUID(uuid ipc.UUID) (inventory.Device, bool) {
	return d.device(func(dev *inventory.Device) bool { return uuid != (ipc.UUID{}) && dev.UUIDBytes == uuid })
}

func (d *Daemon) deviceByIndex(index int) (inventory.Device, bool) {
	return d.device(func(dev *inventory.Device) bool { return dev.Index == index })
}

// device is the first one that is.
func (d *Daemon) device(is func(*inventory.Device) bool) (inventory.Device, bool) {
	devices := d.devices()
	for i := range devices {
		if is(&devices[i]) {
			return devices[i], true
		}
	}
	return inventory.Device{}, false
}

// driver answers on which device a driver is counted that computes on the processor.
func (cl *client) driver(r *ipc.DriverRequest) (rep ipc.DriverReply, err error) {
	copy(rep.Device[:], inventory.ProcessorUUID)
	cl.d.lock()
	cl.applyLocked()
	index, placed := cl.d.arb.DriverDevice(strings.TrimRight(string(r.Name[:]), "\x00"))
	cl.d.unlock()
	if dev, known := cl.d.deviceByIndex(index); placed && known {
		rep.Device = dev.UUIDBytes
	}
	return rep, nil
}

// copies notes that the client uses two copies of a driver's library, and that one of them is not held to limits.
func (cl *client) copies(r *ipc.CopiesRequest) (ipc.Empty, error) {
	cl.d.lock()
	defer cl.d.unlock()
	cl.applyLocked()
	cl.d.arb.TwoCopies(cl.d.now(), cl.s.id, r.Held.String(), r.Beside.String())
	return ipc.Empty{}, nil
}

// nameOfDevice is how people know a device.
func (d *Daemon) nameOfDevice(index int) string {
	dev, ok := d.deviceByIndex(index)
	return accounting.DeviceName(index, ok && !isGPU(dev))
}

// lastDevices is what the daemon before this one found: a device that hangs at the start is
// known from there, and with it what was granted on it.
func (d *Daemon) lastDevices() (last []inventory.Device) {
	text, err := os.ReadFile(d.paths.devices)
	if err != nil || json.Unmarshal(text, &last) != nil {
		return nil
	}
	return last
}

// keepDevices writes down what was found. Several goroutines may call it.
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
