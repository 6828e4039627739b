package arbiter

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/permit"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file finds devices, and computes their bytes and slots from their rule, live limits and the configuration. devices.go has the
// daemon's calls.

// device returns the device with an index, or nil.
func (a *Arbiter) device(index int) *device {
	for _, d := range a.devices {
		if d.Index == index {
			return d
		}
	}
	return nil
}

// grantable returns the most bytes of a device that can ever be granted.
func (d *device) grantable() accounting.Bytes { return d.Total.Less(d.reserve()) }

// reserve returns the bytes of a device that are never granted.
func (d *device) reserve() accounting.Bytes { return min(d.rule.Reserve.Of(d.Total), d.Total) }

// chargedUnmanaged returns the unmanaged bytes on a device that count against budgets of jobs.
func (d *device) chargedUnmanaged() (sum accounting.Bytes) {
	for _, n := range d.unmanagedOf {
		sum = sum.Plus(n)
	}
	return sum
}

// divided reports whether a device has MIG instances, which programs see in its place.
func (a *Arbiter) divided(of *device) bool {
	return slices.ContainsFunc(a.devices, func(d *device) bool { return d.Parent != nil && *d.Parent == of.Index && !d.lost })
}

// listAllowed names the devices that a rule allows, for messages.
func (a *Arbiter) listAllowed(rule *rules.Terms) string {
	var names []string
	for _, d := range a.devices {
		if d.IsGPU() && rule.Devices.Has(d.Device) && !a.divided(d) {
			names = append(names, d.String())
		}
	}
	return cmp.Or(strings.Join(names, ", "), wording.NoneHere)
}

// Total returns the bytes of a device, as the configuration sets them; 0 for an unknown device.
func (a *Arbiter) Total(index int) accounting.Bytes {
	if d := a.device(index); d != nil {
		return d.Total
	}
	return 0
}

// Lost reports whether a known device was lost and has not come back.
func (a *Arbiter) Lost(index int) bool {
	d := a.device(index)
	return d != nil && d.lost
}

// DriverDevice returns the device on which allocations of a driver that computes on the processor are counted: the first device whose rule
// names the driver. False: no rule does, and they are counted on the processor.
func (a *Arbiter) DriverDevice(name string) (index int, placed bool) {
	for _, d := range a.devices {
		if d.IsGPU() && slices.Contains(d.rule.Also, name) {
			return d.Index, true
		}
	}
	return 0, false
}

// makeLimits sets up the limits of a new device.
func (d *device) makeLimits() {
	for k := range d.permitLimits {
		d.permitLimits[k] = limit{device: d, kind: limitsPermits}
	}
	d.ownSlotLimit, d.bytes = limit{device: d, kind: limitsOwnSlots}, limit{device: d}
}

// configure applies the device's rule of the present policy.
func (a *Arbiter) configure(d *device) {
	a.changed()
	d.rule = a.policy.ForDevice(d.Device)
	d.Total, d.totalFrom = d.detected, cmp.Or(d.From, accounting.FromDriver)
	if d.rule.Memory > 0 {
		d.Total, d.totalFrom = d.rule.Memory, accounting.FromConfiguration
	}
}

// slotsMax returns the slots.max in force; 0: no limit.
func (d *device) slotsMax() int {
	if most, _, live := d.live.Slots(d.Index); live {
		return most
	}
	return max(0, d.rule.SlotsMax)
}

// slotsBy returns the setting that slots.max comes from.
func (d *device) slotsBy() string {
	_, by, live := d.live.Slots(d.Index)
	if !live && d.slotsMax() > 0 {
		return "the configuration"
	}
	return by
}

// caps returns how many permits of each kind a device has. With slots.max, a claim takes one of the slots, so that slots.max limits claims
// too and there may be several. Without slots.max, slots are unlimited and the device has one claim.
func (d *device) caps() permit.Caps {
	if most := d.slotsMax(); most > 0 {
		return permit.Caps{permit.Slot: most}
	}
	return permit.Caps{permit.Claim: 1}
}
