package inventory

// This file finds the devices that NVML knows, when the inventory is opened and later. inventory.go and scan.go call
// it; nvmlhost.go has the library.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// open loads the library and finds its devices. reason says why some or all are absent.
//
// If the library hangs or does not start any more, for example because a driver update waits for a reboot, open
// returns the devices of the last run. They are read as soon as the library answers: programs that use them continue,
// and their requests must be admitted.
func (h *nvmlHost) open(last []Device) (list []foundDevice, reason string) {
	last = slices.DeleteFunc(slices.Clone(last), func(d Device) bool { return d.Vendor != "nvidia" })
	first := make(chan string, 1)
	count := 0
	go func() {
		reason := h.start()
		if reason == "" {
			count, reason = h.count()
		}
		first <- reason
	}()
	var late <-chan time.Time
	if len(last) > 0 {
		late = time.After(openPatience)
	}
	select {
	case reason = <-first:
	case <-late:
		reason = "NVIDIA: NVML does not answer"
	}
	if reason == "" {
		if list, reason = h.devices(count, last); list != nil || reason == "" {
			return list, reason
		}
	}
	for _, d := range last {
		list = append(list, foundDevice{d, &nvmlSource{host: h, uuid: d.UUID}})
	}
	if len(list) > 0 {
		reason += ": its devices are those that it had last"
	}
	return list, reason
}

// devices describes all devices at once, in parallel. For a device that hangs or is lost it returns the description
// of the last run.
func (h *nvmlHost) devices(count int, last []Device) (list []foundDevice, reason string) {
	var reasons []string
	var instances []foundDevice
	if count == 0 {
		reasons = append(reasons, "NVIDIA: the driver has no device")
	}
	descriptions := make([]chan description, count)
	for i := range descriptions {
		descriptions[i] = make(chan description, 1)
		go func() { descriptions[i] <- h.describe(i) }()
	}
	late, stop := context.WithTimeout(context.Background(), openPatience)
	defer stop()
	for i := range descriptions {
		l := description{err: errors.New("it does not answer")}
		select {
		case l = <-descriptions[i]:
		case <-late.Done():
		}
		if l.err != nil {
			reasons = append(reasons, fmt.Sprintf("NVIDIA: device %d: %v", i, l.err))
			known := slices.IndexFunc(last, func(d Device) bool { return d.Index == i && d.Parent == "" })
			if known < 0 {
				continue
			}
			l.device = last[known]
			for _, d := range last {
				if d.Parent == l.device.UUID {
					l.instances = append(l.instances, foundDevice{d, &nvmlSource{host: h, uuid: d.UUID}})
				}
			}
		}
		list = append(list, foundDevice{l.device, &nvmlSource{host: h, uuid: l.device.UUID}})
		instances = append(instances, l.instances...)
	}
	return append(list, instances...), strings.Join(reasons, "; ")
}

// description is the result of asking for one device's facts.
type description struct {
	device    Device
	instances []foundDevice // the device's MIG instances
	err       error
}

// describe asks for the facts of the device with an NVML index, and of its MIG instances.
func (h *nvmlHost) describe(index int) description {
	if err := h.beginCall(); err != nil {
		return description{err: err}
	}
	defer h.endCall()
	handle, ret := h.lib.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		return description{err: ret}
	}
	d, err := describeNVML(handle, index, h.optional)
	if err == nil {
		h.storeHandle(d.UUID, handle)
	}
	if err != nil {
		return description{err: err}
	}
	return description{device: d, instances: h.instances(handle, d)}
}

// newDevices returns the GPUs and MIG instances that the library shows and that known does not have. reason says why
// devices are absent.
func (h *nvmlHost) newDevices(known func(uuid string) bool) (list []foundDevice, reason string) {
	if !h.running() {
		h.mu.Lock()
		defer h.mu.Unlock()
		return nil, h.why
	}
	if err := h.beginCall(); err != nil {
		return nil, ""
	}
	count, reason := h.count()
	h.endCall()
	reasons := appendReason(nil, reason)
	if reason == "" && count == 0 {
		reasons = append(reasons, "NVIDIA: the driver has no device")
	}
	var instances []foundDevice
	for i := range count {
		l := h.describe(i)
		if l.err != nil {
			reasons = append(reasons, fmt.Sprintf("NVIDIA: device %d: %v", i, l.err))
			continue
		}
		list = append(list, foundDevice{l.device, &nvmlSource{host: h, uuid: l.device.UUID}})
		instances = append(instances, l.instances...)
	}
	list = append(list, instances...)
	return slices.DeleteFunc(list, func(f foundDevice) bool { return known(f.device.UUID) }), strings.Join(reasons, "; ")
}

// instances returns a GPU's MIG instances. The caller is between beginCall and endCall.
func (h *nvmlHost) instances(gpu nvml.Device, of Device) (list []foundDevice) {
	if !h.optional.mig {
		return nil
	}
	if on, _, ret := gpu.GetMigMode(); ret != nvml.SUCCESS || on != nvml.DEVICE_MIG_ENABLE {
		return nil
	}
	most, _ := gpu.GetMaxMigDeviceCount()
	for k := range most {
		handle, ret := gpu.GetMigDeviceHandleByIndex(k)
		if ret != nvml.SUCCESS {
			continue // instance numbers have gaps
		}
		d, err := describeNVML(handle, anyIndex, h.optional)
		if err != nil {
			continue // the instance is being made or destroyed
		}
		d.Parent, d.Ordinal = of.UUID, of.Ordinal
		d.PCI = cmp.Or(d.PCI, of.PCI)
		h.storeHandle(d.UUID, handle)
		list = append(list, foundDevice{d, &nvmlSource{host: h, uuid: d.UUID}})
	}
	return list
}
