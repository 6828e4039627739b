package main

// This file turns --device and --prefer into the devices of a request for a job. run and claim call
// choose, by way of prepare (run.go). device.go finds a device by its name, and visible.go reads
// CUDA_VISIBLE_DEVICES and similar variables.

import (
	"errors"
	"slices"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/gpuarb/gpuarb/ipc"
)

// errNoDevice is the failure on a machine without a GPU.
var errNoDevice = fail(exitUnavailable, "no device: the daemon knows no GPU on this machine; `gpuarb doctor` says why")

// needsDevices reports whether the request depends on which devices the machine has.
func (o *jobOptions) needsDevices(size accounting.Size) bool {
	return o.device != "" || o.prefer != "" || o.reservesAtStart() || size.IsAbsolute()
}

// choose writes the chosen devices into the request. It refuses a budget that is larger than each
// of these devices.
func (a *app) choose(request *ipc.JobOpenRequest, o *jobOptions, size accounting.Size, known []figures.DeviceState) error {
	all := figures.GPUs(known)
	name := strings.ToLower(o.device)
	if name == "" && o.prefer != "" {
		name = anyDevice
	}
	vendor, ofVendor := ipc.Vendors[name]
	switch {
	case name == "" && len(all) == 0 && o.minSize != (accounting.Size{}):
		return errNoDevice
	case name == "":
		if err := o.checkSizes(all, size); err != nil {
			return err
		}
		return a.chooseVisible(request, o, all)
	case name == anyDevice || ofVendor && vendor != ipc.VendorCPU:
		return a.chooseAny(request, o, size, a.pool(all, vendor), len(all))
	case name == emptiestDevice:
		return a.chooseEmptiest(request, o, size, a.pool(all, 0), len(all))
	case o.prefer != "":
		return fail(exitUsage, "--prefer: there is nothing to prefer among the devices of --device; it goes with --device any")
	}
	chosen, err := namedDevices(known, o.device)
	if err == nil && request.Flags&ipc.JobClaim != 0 {
		err = mayClaim(chosen, all)
	}
	if err != nil {
		return fail(exitUnavailable, "--device: %w", err)
	}
	if lost := filter(chosen, func(d figures.DeviceState) bool { return d.Lost }); len(lost) > 0 {
		return fail(exitUnavailable, "--device: %s is lost: it fell off the bus", report.ListDevices(lost[:1]))
	}
	if err := o.checkSizes(chosen, size); err != nil {
		return err
	}
	setDevices(request, chosen)
	return nil
}

// mayClaim refuses to claim the processor. On a machine without a GPU the error says that there is
// none.
func mayClaim(chosen, gpus []figures.DeviceState) error {
	for _, device := range chosen {
		if !device.IsGPU() && len(gpus) == 0 {
			return noGPU(processorDevice)
		} else if !device.IsGPU() {
			return errors.New("the processor is no GPU: `gpuarb run --device cpu` runs a program on it, and nobody claims it")
		}
	}
	return nil
}

// chooseEmptiest asks for the device of the pool with the most free memory, which the daemon knows.
func (a *app) chooseEmptiest(request *ipc.JobOpenRequest, o *jobOptions, size accounting.Size, pool []figures.DeviceState, known int) error {
	switch {
	case request.Flags&ipc.JobClaim != 0:
		return fail(exitUsage, "--device emptiest: it shares a device with others, and a claim is for one that is free: --device any")
	case o.exclusive:
		return fail(exitUsage, "--device emptiest: it shares a device with others, and --exclusive is for one alone: --device any")
	case o.prefer != "":
		return fail(exitUsage, "--prefer: the free memory decides with --device emptiest; --prefer goes with --device any")
	}
	if err := a.chooseAny(request, o, size, pool, known); err != nil {
		return err
	}
	request.Flags = request.Flags&^ipc.JobAny | ipc.JobEmptiest
	return nil
}

// chooseAny asks for any device of the pool. The devices that --prefer names are tried first.
func (a *app) chooseAny(request *ipc.JobOpenRequest, o *jobOptions, size accounting.Size, pool []figures.DeviceState, known int) error {
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
		if err == nil && slices.ContainsFunc(first, func(d figures.DeviceState) bool { return !d.IsGPU() }) {
			err = errors.New("the processor is no GPU, and --device any is one of those")
		}
		if err != nil {
			return fail(exitUnavailable, "--prefer: %w", err)
		}
		pool = append(first, filter(pool, func(d figures.DeviceState) bool { return !contains(first, d) })...)
	}
	request.Flags |= ipc.JobAny
	setDevices(request, pool)
	return nil
}

// namedDevices returns the devices of a list of names, each once.
func namedDevices(all []figures.DeviceState, list string) ([]figures.DeviceState, error) {
	var found []figures.DeviceState
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
