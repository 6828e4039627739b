package daemon

import (
	"encoding/json"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/inventory"
	"github.com/gpuarb/gpuarb/ipc"
)

func (d *Daemon) addDevices() {
	d.devices = d.inv.Devices()
	if why := d.inv.Why(); why != "" {
		level := slog.LevelInfo
		if !slices.ContainsFunc(d.devices, isGPU) {
			level = slog.LevelWarn
		}
		d.log.Log(d.ctx, level, "devices", "found", len(d.devices), "note", why)
	}
	now := d.now()
	d.lock()
	defer d.unlock()
	for _, dev := range d.devices {
		d.readers[dev.Index] = newReader(d, dev.Index)
		d.arb.AddDevice(now, deviceOf(dev))
	}
}

// deviceOf is a device as the arbiter takes it.
func deviceOf(dev inventory.Device) rules.Device {
	return rules.Device{Index: dev.Index, Vendor: dev.Vendor, Name: dev.Name,
		UUID: dev.UUID, PCI: dev.PCI, Total: usable(dev)}
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
	for i := range d.devices {
		if is(&d.devices[i]) {
			return d.devices[i], true
		}
	}
	return inventory.Device{}, false
}

// driver answers on which device a driver is counted that computes on the processor.
func (cl *client) driver(r *ipc.DriverRequest) (rep ipc.DriverReply, err error) {
	copy(rep.Device[:], inventory.ProcessorUUID)
	cl.d.lock()
	index, placed := cl.d.arb.DriverDevice(strings.TrimRight(string(r.Name[:]), "\x00"))
	cl.d.unlock()
	if dev, known := cl.d.deviceByIndex(index); placed && known {
		rep.Device = dev.UUIDBytes
	}
	return rep, nil
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

// keepDevices writes down what was found.
func (d *Daemon) keepDevices() {
	if slices.Equal(d.devices, d.lastDevices()) {
		return
	}
	text, err := json.Marshal(d.devices)
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
