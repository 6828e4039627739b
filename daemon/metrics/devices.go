package metrics

// This file has the metrics of devices. family.go has the types, and machine.go lists all metrics.

import (
	"slices"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// deviceLabels identify a device: the index, which may change at a reboot, and the UUID, which
// stays.
var deviceLabels = []string{"device", "uuid"}

type device = figures.DeviceState

// memoryKinds are the values of the label kind of gpuarb_memory_bytes.
var memoryKinds = []struct {
	name string
	of   func(*device) accounting.Bytes
}{
	{"total", func(d *device) accounting.Bytes { return d.Total }},
	{"set_aside", func(d *device) accounting.Bytes { return d.Reserve }},
	{"unmanaged", func(d *device) accounting.Bytes { return d.Unmanaged }},
	{"overhead", func(d *device) accounting.Bytes { return d.Overhead }},
	{"capacity", func(d *device) accounting.Bytes { return d.Capacity }},
	{"used", func(d *device) accounting.Bytes { return d.Used }},
	{"granted", func(d *device) accounting.Bytes { return d.Granted }},
	{"reserved", func(d *device) accounting.Bytes { return d.Reserved }},
	{"committed", func(d *device) accounting.Bytes { return d.Committed }},
	{"free", func(d *device) accounting.Bytes { return d.Capacity - min(d.Capacity, d.Committed) }},
	{"grantable", func(d *device) accounting.Bytes { return d.Free }},
	{"peak", func(d *device) accounting.Bytes { return d.Peak }},
}

// perDevice makes a value for each device.
func perDevice(of func(*device) float64) func(*view, *output) {
	return func(v *view, o *output) {
		for i := range v.Devices {
			o.value(of(&v.Devices[i]), v.device(v.Devices[i].Index)...)
		}
	}
}

// deviceFamilies returns the metrics of devices.
func deviceFamilies() []family {
	return []family{
		gauge("device_info", "Vendor, name and PCI address of a device; always 1.", appendLabels(deviceLabels, "pci", "vendor", "name"), deviceInfo),
		gauge("device_up", "Whether a device answers: 0 when it is lost or unresponsive.", deviceLabels,
			perDevice(func(d *device) float64 { return boolValue(!d.Lost && !d.Unresponsive) })),
		gauge("device_divided", "Whether a GPU is divided into MIG instances, which have its memory: sums over devices leave it out.", deviceLabels, divided),
		gauge("memory_bytes", "Memory of a device, by kind. Kinds overlap.", appendLabels(deviceLabels, "kind"), deviceMemory),
		gauge("suspended_bytes", "Memory that suspended jobs gave back on a device, and will ask for again.", deviceLabels,
			perDevice(func(d *device) float64 { return float64(d.Suspended) })),
		gauge("streams", "Streams of all programs on a device.", deviceLabels,
			perDevice(func(d *device) float64 { return float64(d.Streams) })),
		gauge("slots", "Slots of a device that are taken.", deviceLabels,
			perDevice(func(d *device) float64 { return float64(d.SlotsCurrent) })),
		gauge("slots_limit", "Slots of a device; absent where they are not limited.", deviceLabels, slotsLimit),
		gauge("claims", "Jobs that have claimed a device.", deviceLabels,
			perDevice(func(d *device) float64 { return float64(d.Claims) })),
		gauge("leases", "Leases on a device, by state.", appendLabels(deviceLabels, "state"), leases),
		counter("requests_total", "Requests on a device, by outcome.", appendLabels(deviceLabels, "outcome"), requests),
		counter("requests_at_capacity_total", "Requests for memory of a device that exceeded what was free of its capacity, refused or not.", deviceLabels,
			perDevice(func(d *device) float64 { return float64(d.AtMax) })),
		counter("pressure_seconds_total", "How long a job waited for memory of a device (some), and how long no job there could continue meanwhile (full).",
			appendLabels(deviceLabels, "kind"), devicePressure),
	}
}

func boolValue(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func deviceInfo(v *view, o *output) {
	for _, d := range v.Devices {
		o.value(1, appendLabels(v.device(d.Index), labelValue(d.PCI), labelValue(d.Vendor), labelValue(d.Name))...)
	}
}

func divided(v *view, o *output) {
	for _, d := range v.Devices {
		hasInstances := slices.ContainsFunc(v.Devices, func(x device) bool { return x.Parent != nil && *x.Parent == d.Index })
		o.value(boolValue(hasInstances), v.device(d.Index)...)
	}
}

func deviceMemory(v *view, o *output) {
	for i := range v.Devices {
		for _, kind := range memoryKinds {
			o.value(float64(kind.of(&v.Devices[i])), appendLabels(v.device(v.Devices[i].Index), kind.name)...)
		}
	}
}

func slotsLimit(v *view, o *output) {
	for _, d := range v.Devices {
		if d.SlotsMax > 0 {
			o.value(float64(d.SlotsMax), v.device(d.Index)...)
		}
	}
}

// states are the states of leases and jobs.
var states = []figures.State{figures.StateRunning, figures.StateWaiting, figures.StateOver,
	figures.StateUnverified, figures.StateDraining, figures.StateLost,
	figures.StateSuspending, figures.StateSuspended, figures.StateResuming, figures.StateStuck}

func leases(v *view, o *output) {
	type place struct {
		device int
		state  figures.State
	}
	counts := map[place]int{}
	for i := range v.Leases {
		counts[place{v.Leases[i].Device, v.Leases[i].State}]++
	}
	for _, d := range v.Devices {
		for _, state := range states {
			o.value(float64(counts[place{d.Index, state}]), appendLabels(v.device(d.Index), string(state))...)
		}
	}
}

func requests(v *view, o *output) {
	for _, d := range v.Devices {
		o.value(float64(d.Admitted), appendLabels(v.device(d.Index), "granted")...)
		o.value(float64(d.Denied), appendLabels(v.device(d.Index), "refused")...)
	}
}

func devicePressure(v *view, o *output) {
	for _, d := range v.Devices {
		o.pressure(d.Pressure, v.device(d.Index))
	}
}

// pressure writes the values of both kinds of pressure.
func (o *output) pressure(p figures.PressureState, labels []string) {
	o.value(microseconds(p.Some.TotalUs), appendLabels(labels, "some")...)
	o.value(microseconds(p.Full.TotalUs), appendLabels(labels, "full")...)
}
