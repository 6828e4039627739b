package main

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
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
		list, set := shim.LookupEnv(os.Environ(), shim.VisibilityVariables[vendor])
		if set {
			of = listed(of, vendor, list)
		}
		seen = append(seen, of...)
	}
	return seen
}

// listed returns the devices of one vendor that a list names. CUDA and ROCm stop reading at the
// first entry that names no device, or a device that was named before.
func listed(of []figures.DeviceState, vendor uint32, list string) (found []figures.DeviceState) {
	for _, name := range strings.Split(list, ",") {
		device, ok := entry(of, vendor, strings.TrimSpace(name))
		switch {
		case ok && !contains(found, device):
			found = append(found, device)
		case vendor != ipc.VendorIntel:
			return found
		}
	}
	return found
}

// entry returns the device that one entry of a list names. A name is the number among the devices
// of the vendor, the UUID, or the beginning of only one UUID. The name of a MIG instance contains
// the UUID of its GPU (MIG-GPU-…/1/0), and the name of an Intel tile begins with its device (0.1).
func entry(of []figures.DeviceState, vendor uint32, name string) (device figures.DeviceState, ok bool) {
	if vendor == ipc.VendorIntel {
		name, _, _ = strings.Cut(name, ".")
	}
	if n, err := strconv.ParseUint(name, 10, 31); err == nil {
		for i, device := range of {
			if vendor == ipc.VendorNVIDIA {
				i = device.Index // NVIDIA numbers begin with 0, and a card that does not answer leaves a gap
			}
			if i == int(n) {
				return device, true
			}
		}
		return device, false
	}
	if gpu, instance := strings.CutPrefix(name, "MIG-GPU-"); instance {
		gpu, _, _ = strings.Cut(gpu, "/")
		name = "GPU-" + gpu
	}
	found := filter(of, func(d figures.DeviceState) bool {
		return len(name) > len(uuidPrefix) && strings.HasPrefix(strings.ToLower(d.UUID), strings.ToLower(name))
	})
	if len(found) != 1 {
		return device, false
	}
	return found[0], true
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
	if !set || len(all) < 2 {
		return false
	}
	instances := slices.ContainsFunc(all, func(d figures.DeviceState) bool { return d.Parent != nil })
	order := os.Getenv("CUDA_DEVICE_ORDER")
	for _, name := range strings.Split(list, ",") {
		name = strings.TrimSpace(name)
		_, err := strconv.ParseUint(name, 10, 31)
		_, known := entry(all, ipc.VendorNVIDIA, name)
		if err == nil && (instances || order != "" && order != "PCI_BUS_ID") || // with MIG, the numbers of the program are not those of the daemon
			strings.HasPrefix(name, "MIG-") && !strings.HasPrefix(name, "MIG-GPU-") && !known {
			return true
		}
	}
	return false
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
