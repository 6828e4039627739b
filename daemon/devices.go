package daemon

// This file finds devices in the daemon's table, for all files that handle requests. scan.go fills the table.

import (
	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/daemon/inventory"
	"github.com/gpuarb/gpuarb/ipc"
)

func (d *Daemon) devices() []inventory.Device { return d.known.Load().devices }

func (d *Daemon) readers() map[int]*reader { return d.known.Load().readers }

func isGPU(dev inventory.Device) bool { return dev.Vendor != accounting.VendorCPU }

// usable returns how many bytes of a device programs can have. A driver may reserve a part, which the driver's total
// includes and CUDA's total does not.
func usable(dev inventory.Device) accounting.Bytes {
	return accounting.Bytes(dev.Total - min(dev.Reserved, dev.Total))
}

// deviceOf converts a device for the arbiter.
func (d *Daemon) deviceOf(dev inventory.Device) rules.Device {
	of := rules.Device{Index: dev.Index, Vendor: dev.Vendor, Name: dev.Name,
		UUID: dev.UUID, PCI: dev.PCI, Total: usable(dev), From: dev.From}
	if parent, ok := d.findDevice(func(p *inventory.Device) bool { return dev.Parent != "" && p.UUID == dev.Parent }); ok {
		of.Parent, of.ParentUUID = &parent.Index, parent.UUID
	}
	return of
}

// deviceByUUID finds a device by its UUID. Clients cannot request a device without a UUID; reports show it.
func (d *Daemon) deviceByUUID(uuid ipc.UUID) (inventory.Device, bool) {
	return d.findDevice(func(dev *inventory.Device) bool { return uuid != (ipc.UUID{}) && dev.UUIDBytes == uuid })
}

func (d *Daemon) deviceByIndex(index int) (inventory.Device, bool) {
	return d.findDevice(func(dev *inventory.Device) bool { return dev.Index == index })
}

// findDevice returns the first device for which is returns true.
func (d *Daemon) findDevice(is func(*inventory.Device) bool) (inventory.Device, bool) {
	devices := d.devices()
	for i := range devices {
		if is(&devices[i]) {
			return devices[i], true
		}
	}
	return inventory.Device{}, false
}

// nameOfDevice returns the name of a device in messages, such as "GPU 0".
func (d *Daemon) nameOfDevice(index int) string {
	dev, ok := d.deviceByIndex(index)
	return accounting.DeviceName(index, ok && !isGPU(dev))
}

// wakeReaders makes each reader read its device now, because the daemon is no longer idle.
func (d *Daemon) wakeReaders() {
	for _, r := range d.readers() {
		signal(r.wake)
	}
}

// readSoon wakes the reader of a device.
func (d *Daemon) readSoon(index int) {
	if r := d.readers()[index]; r != nil {
		signal(r.wake)
	}
}
