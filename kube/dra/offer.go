package dra

// This file describes a GPU to the scheduler: how much of the GPU claims can take, and whether the GPU works. It also describes the GPU's
// health to the kubelet. driver.go publishes the descriptions.

import (
	"fmt"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

// Names of the capacities of a device, which claims request.
const (
	memory  resourcev1.QualifiedName = "memory"  // bytes of the GPU for all processes of the claim together
	streams resourcev1.QualifiedName = "streams" // streams of each process
	slots   resourcev1.QualifiedName = "slots"   // shares of the GPU
)

// streamsOfShare is the limit of streams of each process for a claim that requests no number of streams. It equals the default of the
// daemon's setting streams.max.
const streamsOfShare = 256

// pciAttribute is Kubernetes' own name of the attribute with the PCI address. Claims use it to get devices that are near each other, such
// as a GPU and a network card.
const pciAttribute resourcev1.QualifiedName = "resource.kubernetes.io/pciBusID"

// Keys of the taints that keep new claims from a device.
const (
	taintUnhealthy = "gpuarb.dev/unhealthy" // the driver has lost the GPU, or the GPU does not answer
	taintNoDaemon  = "gpuarb.dev/no-daemon" // gpuarbd does not answer, so that it cannot hold a claim to its share
)

// unit is the step of unmanaged memory in the offer, in bytes. Unmanaged memory is rounded up to a multiple of unit, so that small changes
// of it do not change the offer.
const unit = 64 << 20

// room returns the bytes of a GPU that all claims can take together. It subtracts the daemon's reserve from the
// GPU's memory. It subtracts one context for each expected share, because contexts lie outside the budgets of claims. It also subtracts the
// memory of unmanaged processes without a job, because no budget limits them.
func (d *Driver) room(g *gpu) uint64 {
	var others uint64
	for _, p := range g.Unmanaged {
		if p.Job == 0 {
			others += p.Bytes
		}
	}
	taken := g.Reserve + (others+unit-1)/unit*unit + uint64(d.Shares)*g.Context
	if taken >= g.Total {
		return 0
	}
	return g.Total - taken
}

// device describes a GPU to the scheduler, with its attributes, its capacities and, if it does not work, a taint. The error says why the
// GPU cannot be offered.
func (d *Driver) device(g *gpu) (resourcev1.Device, error) {
	room, several := d.room(g), true
	if room < 2 {
		return resourcev1.Device{}, fmt.Errorf("GPU %s has %d bytes, which are not enough for %d contexts of %d bytes and what is reserved: lower --expected-shares", g.id(), g.Total, d.Shares, g.Context)
	}
	places := uint64(d.Shares)
	if g.SlotsMax != 0 {
		places = min(places, g.SlotsMax)
	}
	device := resourcev1.Device{Name: g.name(), AllowMultipleAllocations: &several, Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
		"index": {IntValue: new(int64(g.Index))}, "uuid": text(g.id()), "vendor": text(g.Vendor), "productName": text(g.Product)}}
	if g.PCI != "" {
		device.Attributes[pciAttribute] = text(g.PCI)
	}
	largest := min(room, d.Most)
	device.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{
		memory:  capacity(room, largest, largest),
		streams: capacity(places*streamsOfShare, streamsOfShare, places*streamsOfShare),
		slots:   capacity(places, 1, places),
	}
	if wrong := g.wrong(); wrong != "" {
		device.Taints = []resourcev1.DeviceTaint{{Key: taintUnhealthy, Effect: resourcev1.DeviceTaintEffectNoSchedule}}
	}
	return device, nil
}

// text returns an attribute with a string, cut to the length that Kubernetes allows.
func text(value string) resourcev1.DeviceAttribute {
	value = value[:min(len(value), resourcev1.DeviceAttributeMaxValueLength)]
	return resourcev1.DeviceAttribute{StringValue: &value}
}

// capacity describes a capacity of total units. Each request takes a whole number of units: at least one, and at most the number most. A
// request without a number takes the number usual.
func capacity(total, usual, most uint64) resourcev1.DeviceCapacity {
	policy := &resourcev1.CapacityRequestPolicy{Default: quantity(usual),
		ValidRange: &resourcev1.CapacityRequestPolicyRange{Min: quantity(1), Max: quantity(most)}}
	if total > 1 { // Kubernetes refuses a step if min + step is larger than the capacity
		policy.ValidRange.Step = quantity(1)
	}
	return resourcev1.DeviceCapacity{Value: *quantity(total), RequestPolicy: policy}
}

func quantity(n uint64) *resource.Quantity { return resource.NewQuantity(int64(n), resource.BinarySI) }

// health returns the health of a GPU for the kubelet, as known at the time at. lost is the reason why the daemon does not answer; nil: it
// answers. Without an answer the health is unknown.
func (d *Driver) health(g *gpu, lost error, at time.Time) kubeletplugin.DeviceHealth {
	h := kubeletplugin.DeviceHealth{PoolName: d.Node, DeviceName: g.name(), Health: kubeletplugin.HealthStatusHealthy, LastUpdated: at}
	if lost != nil {
		h.Health, h.Message = kubeletplugin.HealthStatusUnknown, lost.Error()
	} else if wrong := g.wrong(); wrong != "" {
		h.Health, h.Message = kubeletplugin.HealthStatusUnhealthy, wrong
	}
	return h
}
