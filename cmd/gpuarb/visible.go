package main

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/figures"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/shim"
)

// What of the devices this program's own environment lets a program see: CUDA_VISIBLE_DEVICES and
// its like, read as the vendors' libraries read them.

// pool is what `any` is taken from: the devices that work, of a vendor (0: of each), and of those
// the ones that can be seen.
func (a *app) pool(all []figures.DeviceState, vendor uint32) []figures.DeviceState {
	seen := a.seen(all)
	return filter(all, func(d figures.DeviceState) bool {
		return !d.Lost && (vendor == 0 || vendor == ipc.Vendors[d.Vendor]) && contains(seen, d)
	})
}

// seen are the devices that can be seen, in the order in which they are.
func (a *app) seen(all []figures.DeviceState) (seen []figures.DeviceState) {
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

// listed are the devices of one vendor that a list names. CUDA and ROCm read it up to the first
// entry that names no device, or one for the second time.
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

// entry is the device that one entry of a list names: by its number among the vendor's, by its UUID,
// or the beginning of that where no other begins so. An instance of MIG is named with the UUID of its GPU
// (MIG-GPU-…/1/0), and one tile of Intel's with its device (0.1).
func entry(of []figures.DeviceState, vendor uint32, name string) (device figures.DeviceState, ok bool) {
	if vendor == ipc.VendorIntel {
		name, _, _ = strings.Cut(name, ".")
	}
	if n, err := strconv.ParseUint(name, 10, 31); err == nil {
		for i, device := range of {
			if vendor == ipc.VendorNVIDIA {
				i = device.Index // it begins with 0, and a card that does not answer leaves a gap
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

// takes reports whether something is taken at the start, or looked for there.
func (o *jobOptions) takes() bool { return o.noWait || o.min != "" || o.exclusive }

// chooseSeen has a job that takes something at its start take it on the devices that its program is
// going to see. What it reserves must fit one of them.
func (a *app) chooseSeen(request *ipc.JobOpenRequest, o *jobOptions, all []figures.DeviceState) error {
	works := func(d figures.DeviceState) bool { return !d.Lost }
	if !o.takes() || a.unclear(all) {
		return nil
	}
	seen := filter(a.seen(all), works)
	if len(seen) == len(filter(all, works)) {
		return nil
	}
	if len(seen) == 0 {
		if o.min != "" || o.exclusive {
			return fail(exitUnavailable, "no device: CUDA_VISIBLE_DEVICES and its like let the program see none; `gpuarb devices` lists them")
		}
		request.Flags &^= ipc.JobNoWait // nobody can be in its way
		return nil
	}
	fit := filter(seen, func(d figures.DeviceState) bool { return reserves(request, d) <= mostMin(d) })
	if len(fit) == 0 {
		fit = seen // the daemon says what could be
	}
	o.asSeen = len(fit) == len(seen)
	setDevices(request, fit)
	return nil
}

// unclear reports whether the environment names devices in a way that only the driver can tell: by their
// number where the fastest is the first, or instances of MIG by UUIDs of their own.
func (a *app) unclear(all []figures.DeviceState) bool {
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
		if err == nil && (instances || order != "" && order != "PCI_BUS_ID") || // with MIG, the program's numbers are not the daemon's
			strings.HasPrefix(name, "MIG-") && !strings.HasPrefix(name, "MIG-GPU-") && !known {
			return true
		}
	}
	return false
}

// mostMin is the most that can be reserved on a device at all, with a context beside it.
func mostMin(d figures.DeviceState) accounting.Bytes {
	return d.Total.Less(d.Reserve).Less(d.Context)
}

// reserves is what a job reserves on a device.
func reserves(request *ipc.JobOpenRequest, d figures.DeviceState) accounting.Bytes {
	switch {
	case request.Min != ipc.NoLimit:
		return accounting.Bytes(request.Min)
	case request.MinShare >= 1000:
		return mostMin(d)
	}
	return accounting.Size{PerMille: request.MinShare}.Of(d.Total)
}
