package main

import (
	"os"
	"slices"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/shim"
)

// This file computes which devices the environment lets a program see. It reads
// CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES and ZE_AFFINITY_MASK as the libraries of the vendors
// do. choosedevice.go calls it.

// pool returns the devices from which --device any is chosen: the visible devices of a vendor (0:
// of every vendor) that work.
func (a *app) pool(all []figures.DeviceState, vendor uint32) []figures.DeviceState {
	seen := a.visible(all)
	return filter(all, func(d figures.DeviceState) bool {
		return !d.Lost && (vendor == 0 || vendor == ipc.Vendors[d.Vendor]) && contains(seen, d)
	})
}

// visible returns the devices that a program sees, in the order in which it sees them.
func (a *app) visible(all []figures.DeviceState) (seen []figures.DeviceState) {
	for _, vendor := range []uint32{ipc.VendorNVIDIA, ipc.VendorAMD, ipc.VendorIntel} {
		of := filter(all, func(d figures.DeviceState) bool { return ipc.Vendors[d.Vendor] == vendor })
		if list, set := shim.LookupEnv(os.Environ(), shim.VisibilityVariables[vendor]); set && len(of) > 0 {
			of = listed(of, list)
		}
		seen = append(seen, of...)
	}
	return seen
}

// listed returns the devices of one vendor that a list names, in the order of the list.
func listed(of []figures.DeviceState, list string) (found []figures.DeviceState) {
	for _, named := range rules.Listed(ruleDevices(of), of[0].Vendor, list) {
		found = append(found, of[slices.IndexFunc(of, func(d figures.DeviceState) bool { return d.Index == named.Index })])
	}
	return found
}

// ruleDevices returns devices in the form that package rules uses.
func ruleDevices(of []figures.DeviceState) (all []rules.Device) {
	for _, d := range of {
		device := ruleDevice(d)
		device.Parent = d.Parent
		all = append(all, device)
	}
	return all
}

// reservesAtStart reports whether the job takes devices or memory at its start, or asks for them
// there.
func (o *jobOptions) reservesAtStart() bool { return o.noWait || o.min != "" || o.exclusive }

// chooseVisible restricts a job that takes something at its start to the devices that its program
// will see. The reservation must fit on at least one of them.
func (a *app) chooseVisible(request *ipc.JobOpenRequest, o *jobOptions, all []figures.DeviceState) error {
	works := func(d figures.DeviceState) bool { return !d.Lost }
	if !o.reservesAtStart() || a.ambiguous(all) {
		return nil
	}
	seen := filter(a.visible(all), works)
	if len(seen) == len(filter(all, works)) {
		return nil
	}
	if len(seen) == 0 {
		if o.min != "" || o.exclusive {
			return fail(exitUnavailable, "no device: CUDA_VISIBLE_DEVICES and its like let the program see none; `gpuarb devices` lists them")
		}
		request.Flags &^= ipc.JobNoWait // no other job can block this one
		return nil
	}
	fit := filter(seen, func(d figures.DeviceState) bool { return reserves(request, d) <= mostMin(d) })
	if len(fit) == 0 {
		fit = seen // none is large enough: the refusal of the daemon says how much is possible
	}
	o.asVisible = len(fit) == len(seen)
	setDevices(request, fit)
	return nil
}

// ambiguous reports whether the environment names devices in a way that only the driver can
// resolve. Examples are numbers if CUDA_DEVICE_ORDER puts the fastest device first, and MIG
// instances with UUIDs of their own.
func (a *app) ambiguous(all []figures.DeviceState) bool {
	list, set := shim.LookupEnv(os.Environ(), shim.VisibilityVariables[ipc.VendorNVIDIA])
	return set && len(all) > 1 && rules.Ambiguous(ruleDevices(all), list, os.Getenv("CUDA_DEVICE_ORDER"))
}

// mostMin returns the largest reservation that a device allows, in addition to a context.
func mostMin(d figures.DeviceState) accounting.Bytes {
	return d.Total.Less(d.Reserve).Less(d.Context)
}

// reserves returns the bytes that a job reserves on a device.
func reserves(request *ipc.JobOpenRequest, d figures.DeviceState) accounting.Bytes {
	switch {
	case request.Min != ipc.NoLimit:
		return accounting.Bytes(request.Min)
	case request.MinShare >= 1000:
		return mostMin(d)
	}
	return accounting.Size{PerMille: request.MinShare}.Of(d.Total)
}
