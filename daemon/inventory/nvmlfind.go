package inventory

// This file finds the devices that NVML knows, at the start and later. inventory.go and scan.go call it; nvmlhost.go has the library itself.

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
// Where it hangs, or does not start any more (an update of the driver that waits for a reboot), the devices are those that it
// had last time, and answer when it does: programs that use them go on, and have to be admitted.
func (h *nvmlHost) open(last []Device) (list []found, reason string) {
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
		list = append(list, found{d, &nvmlSource{h, d.UUID}})
	}
	if len(list) > 0 {
		reason += ": its devices are those that it had last"
	}
	return list, reason
}

// devices finds the devices, all at the same time. One that hangs or is lost is as it was last.
func (h *nvmlHost) devices(count int, last []Device) (list []found, reason string) {
	var reasons []string
	var instances []found
	if count == 0 {
		reasons = append(reasons, "NVIDIA: the driver has no device")
	}
	looks := make([]chan sight, count)
	for i := range looks {
		looks[i] = make(chan sight, 1)
		go func() { looks[i] <- h.lookAt(i) }()
	}
	late, stop := context.WithTimeout(context.Background(), openPatience)
	defer stop()
	for i := range looks {
		l := sight{err: errors.New("it does not answer")}
		select {
		case l = <-looks[i]:
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
					l.instances = append(l.instances, found{d, &nvmlSource{h, d.UUID}})
				}
			}
		}
		list = append(list, found{l.device, &nvmlSource{h, l.device.UUID}})
		instances = append(instances, l.instances...)
	}
	return append(list, instances...), strings.Join(reasons, "; ")
}

// sight is the result of the first look at a device.
type sight struct {
	device    Device
	instances []found // that MIG made of it
	err       error
}

func (h *nvmlHost) lookAt(index int) sight {
	if err := h.begin(); err != nil {
		return sight{err: err}
	}
	defer h.leave()
	handle, ret := h.lib.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		return sight{err: ret}
	}
	d, err := describeNVML(handle, index, h.optional)
	if err == nil {
		h.keep(d.UUID, handle)
	}
	if err != nil {
		return sight{err: err}
	}
	return sight{device: d, instances: h.instances(handle, d)}
}

// more returns the GPUs and instances that the library shows and that are not known yet. reason says why devices are absent.
func (h *nvmlHost) more(known func(uuid string) bool) (list []found, reason string) {
	if !h.running() {
		h.mu.Lock()
		defer h.mu.Unlock()
		return nil, h.why
	}
	if err := h.begin(); err != nil {
		return nil, ""
	}
	count, reason := h.count()
	h.leave()
	reasons := appendReason(nil, reason)
	if reason == "" && count == 0 {
		reasons = append(reasons, "NVIDIA: the driver has no device")
	}
	var instances []found
	for i := range count {
		l := h.lookAt(i)
		if l.err != nil {
			reasons = append(reasons, fmt.Sprintf("NVIDIA: device %d: %v", i, l.err))
			continue
		}
		list = append(list, found{l.device, &nvmlSource{h, l.device.UUID}})
		instances = append(instances, l.instances...)
	}
	list = append(list, instances...)
	return slices.DeleteFunc(list, func(f found) bool { return known(f.device.UUID) }), strings.Join(reasons, "; ")
}

// instances returns the instances that MIG made of a GPU. The caller is between begin and leave.
func (h *nvmlHost) instances(gpu nvml.Device, of Device) (list []found) {
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
			continue // the numbers have gaps
		}
		d, err := describeNVML(handle, anyIndex, h.optional)
		if err != nil {
			continue // it is being made or ended
		}
		d.Parent, d.Ordinal = of.UUID, of.Ordinal
		d.PCI = cmp.Or(d.PCI, of.PCI)
		h.keep(d.UUID, handle)
		list = append(list, found{d, &nvmlSource{h, d.UUID}})
	}
	return list
}
