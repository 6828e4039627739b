package main

import (
	"slices"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/ipc"
)

// anyDevice as --device asks for whichever is free.
const anyDevice = "any"

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
	return setDevices(request, chosen)
}

// chooseAny asks for any device of the pool, those that are preferred first.
func (a *app) chooseAny(request *ipc.JobOpenRequest, o *jobOptions, size accounting.Size, pool []accounting.DeviceState, known int) error {
	if known == 0 {
		return fail(exitUnavailable, "no device: the daemon knows no GPU on this machine; `gpuarb doctor` says why")
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
			if !slices.ContainsFunc(first, func(d accounting.DeviceState) bool { return d.Index == device.Index }) {
				first = append(first, device)
			}
		}
		pool = first
	}
	request.Flags |= ipc.JobAny
	return setDevices(request, pool)
}

func setDevices(request *ipc.JobOpenRequest, devices []accounting.DeviceState) error {
	if len(devices) > len(request.Device) {
		devices = devices[:len(request.Device)]
	}
	for i, device := range devices {
		request.Device[i] = uint32(device.Index)
	}
	request.Devices = uint32(len(devices))
	return nil
}

// namedDevices are the devices of a list of names, each once.
func namedDevices(all []accounting.DeviceState, list string) ([]accounting.DeviceState, error) {
	var found []accounting.DeviceState
	for _, name := range strings.Split(list, ",") {
		device, err := findDevice(all, strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(found, func(d accounting.DeviceState) bool { return d.Index == device.Index }) {
			found = append(found, device)
		}
	}
	return found, nil
}

// lookupEnv finds a variable in the environment that programs are given.
func (a *app) lookupEnv(name string) (string, bool) {
	return variable(a.environ, name)
}

// variable finds a variable in an environment.
func variable(environ []string, name string) (value string, set bool) {
	for _, entry := range slices.Backward(environ) {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value, true
		}
	}
	return "", false
}
