package main

import (
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/ipc"
)

// anyDevice as --device asks for whichever is free.
const anyDevice = "any"

// errNoDevice is for a machine without a GPU.
var errNoDevice = fail(exitUnavailable, "no device: the daemon knows no GPU on this machine; `gpuarb doctor` says why")

// needsDevices tells whether the options cannot be turned into a request without
// knowing the devices.
func (o *jobOptions) needsDevices(size accounting.Size) bool {
	return o.device != "" || o.prefer != "" || o.takes() || size.IsAbsolute() || o.least.IsAbsolute() && o.least.Bytes > 0
}

// choose writes into the request which devices are meant, and refuses a budget that
// none of them could give.
func (a *app) choose(request *ipc.JobOpenRequest, o *jobOptions, size accounting.Size, all []accounting.DeviceState) error {
	name := strings.ToLower(o.device)
	if name == "" && o.prefer != "" {
		name = anyDevice
	}
	vendor, ofVendor := ipc.Vendors[name]
	switch {
	case name == "":
		if err := o.checkSizes(all, size); err != nil {
			return err
		}
		return a.chooseSeen(request, o, all)
	case name == anyDevice || ofVendor:
		return a.chooseAny(request, o, size, a.pool(all, vendor), len(all))
	case o.prefer != "":
		return fail(exitUsage, "--prefer: there is nothing to prefer among the devices of --device; it goes with --device any")
	}
	chosen, err := namedDevices(all, o.device)
	if err != nil {
		return fail(exitUnavailable, "--device: %w", err)
	}
	for _, device := range chosen {
		if device.Lost {
			return fail(exitUnavailable, "--device: %s is lost: it fell off the bus", listDevices([]accounting.DeviceState{device}))
		}
	}
	if err := o.checkSizes(chosen, size); err != nil {
		return err
	}
	setDevices(request, chosen)
	return nil
}

// chooseAny asks for any device of the pool, those that are preferred first.
func (a *app) chooseAny(request *ipc.JobOpenRequest, o *jobOptions, size accounting.Size, pool []accounting.DeviceState, known int) error {
	if known == 0 {
		return errNoDevice
	}
	if len(pool) == 0 {
		return fail(exitUnavailable, "no device: there is none here that may be taken; `gpuarb devices` lists them, and "+
			"CUDA_VISIBLE_DEVICES and its like narrow them")
	}
	if err := o.checkSizes(pool, size); err != nil {
		return err
	}
	if o.prefer != "" {
		first, err := namedDevices(pool, o.prefer)
		if err != nil {
			return fail(exitUnavailable, "--prefer: %w", err)
		}
		for _, device := range pool {
			if !contains(first, device) {
				first = append(first, device)
			}
		}
		pool = first
	}
	request.Flags |= ipc.JobAny
	setDevices(request, pool)
	return nil
}

func setDevices(request *ipc.JobOpenRequest, devices []accounting.DeviceState) {
	if len(devices) > len(request.Device) {
		devices = devices[:len(request.Device)]
	}
	for i, device := range devices {
		request.Device[i] = uint32(device.Index)
	}
	request.Devices = uint32(len(devices))
}

// namedDevices are the devices of a list of names, each once.
func namedDevices(all []accounting.DeviceState, list string) ([]accounting.DeviceState, error) {
	var found []accounting.DeviceState
	for _, name := range strings.Split(list, ",") {
		device, err := findDevice(all, strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		if !contains(found, device) {
			found = append(found, device)
		}
	}
	return found, nil
}
