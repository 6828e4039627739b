package arbiter

import (
	"cmp"
	"slices"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/permit"
)

// This file finds devices, and says how many bytes and slots each has by its rule, its live limits and the configuration.

// device returns the device with that index, or nil.
func (a *Arbiter) device(index int) *device {
	for _, d := range a.devices {
		if d.Index == index {
			return d
		}
	}
	return nil
}

// grantable is the most that could ever be granted there, in bytes.
func (d *device) grantable() accounting.Bytes { return d.Total.Less(d.reserve()) }

// reserve is what is never granted to anybody.
func (d *device) reserve() accounting.Bytes { return min(d.rule.Reserve.Of(d.Total), d.Total) }

// divided reports whether MIG has made instances of a device, which programs see in its place.
func (a *Arbiter) divided(of *device) bool {
	return slices.ContainsFunc(a.devices, func(d *device) bool { return d.Parent != nil && *d.Parent == of.Index && !d.lost })
}

// Total is how many bytes a device has, as the configuration has it; 0 for one that is not known.
func (a *Arbiter) Total(index int) accounting.Bytes {
	if d := a.device(index); d != nil {
		return d.Total
	}
	return 0
}

// Lost reports whether a device is known, was lost, and has not come back.
func (a *Arbiter) Lost(index int) bool {
	d := a.device(index)
	return d != nil && d.lost
}

// DriverDevice is the device on which a driver is counted that computes on the processor: the first of those whose rule
// names it. False: none does, and it is counted on the processor.
func (a *Arbiter) DriverDevice(name string) (index int, placed bool) {
	for _, d := range a.devices {
		if d.IsGPU() && slices.Contains(d.rule.Also, name) {
			return d.Index, true
		}
	}
	return 0, false
}

// makeLimits makes the limits that a new device has by itself.
func (d *device) makeLimits() {
	for k := range d.permitLimits {
		d.permitLimits[k] = limit{device: d, kind: limitsPermits}
	}
	d.ownSlotLimit, d.bytes = limit{device: d, kind: limitsOwnSlots}, limit{device: d}
}

// configure has a device be as its rule says.
func (a *Arbiter) configure(d *device) {
	a.changed()
	d.rule = a.policy.ForDevice(d.Device)
	d.Total, d.totalFrom = d.detected, cmp.Or(d.From, accounting.FromDriver)
	if d.rule.Memory > 0 {
		d.Total, d.totalFrom = d.rule.Memory, accounting.FromConfiguration
	}
}

// slotsMax is slots.max in force; 0 for no limit.
func (d *device) slotsMax() int {
	if most, _, live := d.live.Slots(d.Index); live {
		return most
	}
	return max(0, d.rule.SlotsMax)
}

// slotsBy is what slots.max comes from.
func (d *device) slotsBy() string {
	_, by, live := d.live.Slots(d.Index)
	if !live && d.slotsMax() > 0 {
		return "the configuration"
	}
	return by
}

// caps are how many permits of each kind a device has.
func (d *device) caps() permit.Caps {
	if most := d.slotsMax(); most > 0 {
		return permit.Caps{permit.Slot: most}
	}
	return permit.Caps{permit.Claim: 1}
}
