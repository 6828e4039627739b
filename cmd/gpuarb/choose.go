package main

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/shim"
)

// anyDevice as --device asks for whichever is free.
const anyDevice = "any"

// vendors are the names by which --device takes any device of one vendor.
var vendors = map[string]uint32{"nvidia": ipc.VendorNVIDIA, "amd": ipc.VendorAMD, "intel": ipc.VendorIntel}

// needsDevices tells whether the options cannot be turned into a request without
// knowing the devices.
func (o *jobOptions) needsDevices(size arbiter.Size) bool {
	return o.device != "" || o.prefer != "" || isAbsolute(size) || isAbsolute(o.least) && o.least.Bytes > 0
}

// choose writes into the request which devices are meant, and refuses a budget that
// none of them could give.
func (a *app) choose(request *ipc.JobOpenRequest, o *jobOptions, size arbiter.Size, all []accounting.DeviceState) error {
	name := strings.ToLower(o.device)
	if name == "" && o.prefer != "" {
		name = anyDevice
	}
	vendor, ofVendor := vendors[name]
	switch {
	case name == "":
		return o.checkSizes(all, size)
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
func (a *app) chooseAny(request *ipc.JobOpenRequest, o *jobOptions, size arbiter.Size, pool []accounting.DeviceState, known int) error {
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

// pool is what `any` is taken from: the devices that work, of a vendor (0: of each),
// and of those the ones that this program's own environment lets it see.
func (a *app) pool(all []accounting.DeviceState, vendor uint32) []accounting.DeviceState {
	var pool []accounting.DeviceState
	ordinals := map[uint32]int{}
	for _, device := range all {
		of := vendors[device.Vendor]
		ordinal := ordinals[of]
		ordinals[of]++
		if of == ipc.VendorNVIDIA {
			ordinal = device.Index // it begins with 0, and a card that does not answer leaves a gap
		}
		if !device.Lost && (vendor == 0 || vendor == of) && a.sees(device, of, ordinal) {
			pool = append(pool, device)
		}
	}
	return pool
}

// sees tells whether the environment lets a program see a device. As CUDA does, a list
// is read up to the first name that names nothing.
func (a *app) sees(device accounting.DeviceState, vendor uint32, ordinal int) bool {
	list, set := a.lookupEnv(shim.VisibilityVariables[vendor])
	if !set {
		return true
	}
	for _, name := range strings.Split(list, ",") {
		name = strings.TrimSpace(name)
		n, err := strconv.Atoi(name)
		switch {
		case err == nil && n < 0, name == "":
			return false
		case err == nil && n == ordinal:
			return true
		case err != nil && isNamed(device, name):
			return true
		}
	}
	return false
}

// lookupEnv finds a variable in the environment that programs are given.
func (a *app) lookupEnv(name string) (string, bool) {
	return find(a.environ, name)
}

// find finds a variable in an environment.
func find(environ []string, name string) (value string, set bool) {
	for _, entry := range slices.Backward(environ) {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value, true
		}
	}
	return "", false
}
