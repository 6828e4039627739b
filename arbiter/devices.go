package arbiter

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file has the daemon's calls about devices: a device is found, is lost, stops answering, or answers again. device.go computes their
// figures.

// AddDevice adds a device, or brings back a lost one. New leases can then be opened on it; its lost leases stay lost. If a device with the
// same index exists, AddDevice replaces its description.
func (a *Arbiter) AddDevice(now time.Time, d rules.Device) {
	defer a.cycle(now)
	known := a.device(d.Index)
	if known == nil {
		known = &device{Device: d, figures: make(map[int]ProcessUsage), byPID: make(map[int][]*lease), leasesAway: make(map[*lease]struct{}),
			policy: &a.policy}
		known.makeLimits()
		a.devices = append(a.devices, known)
		slices.SortFunc(a.devices, func(x, y *device) int { return cmp.Compare(x.Index, y.Index) })
		_ = a.ledger.AddDevice(d.Index, 0) // cannot fail: the device is new
		_ = a.ledger.Probe(&known.direct, nil, d.Index)
	}
	known.Device, known.detected = d, d.Total
	known.live = a.limits[rules.Owner{Kind: rules.OfDevice, ID: uint64(d.Index)}]
	a.configure(known)
	if known.lost {
		known.lost = false
		known.unmanaged, known.unmanagedBy, known.began = 0, nil, time.Time{}
		a.chargeUnmanaged(now, known)
		clear(known.figures)
	}
	a.updateCapacity(now, known)
	a.updateHidden()
	a.renew(now, allJobs, false)
	a.event(Event{Time: now, Kind: EventDevice, Device: d.Index, Bytes: known.Total,
		Text: fmt.Sprintf(wording.DeviceCame, d, wording.Plain(d.Name), known.Total.Human())})
}

// LoseDevice marks a device as lost. Its leases are lost and hold nothing, because no context survives the loss of its device. Requests
// there are refused with ReasonDeviceLost; other devices are not affected. Unknown indices are ignored.
func (a *Arbiter) LoseDevice(now time.Time, index int) {
	d := a.device(index)
	if d == nil || d.lost {
		return
	}
	defer a.cycle(now)
	d.lost = true
	a.changed()
	leases := slices.Collect(a.leasesOn(d))
	for _, l := range leases {
		a.loseLease(now, l)
	}
	a.dropUnusedOn(now, d)
	a.forgetOn(now, d)
	a.event(Event{Time: now, Kind: EventDeviceLost, Device: index, Text: fmt.Sprintf(wording.DeviceLost, d, len(leases))})
}

// Unresponsive marks a device that has not answered for some time. Its last figures stay in use. Unknown and lost devices are ignored.
func (a *Arbiter) Unresponsive(now time.Time, index int, silent time.Duration) {
	d := a.device(index)
	if d == nil || d.lost || d.hung {
		return
	}
	d.hung = true
	a.event(Event{Time: now, Kind: EventHung, Device: index, WaitedMs: silent.Milliseconds(), Text: fmt.Sprintf(wording.DeviceHangs, d, wording.Span(silent))})
}

// Responsive marks a device that answers again.
func (a *Arbiter) Responsive(now time.Time, index int) {
	d := a.device(index)
	if d == nil || !d.hung {
		return
	}
	d.hung = false
	a.event(Event{Time: now, Kind: EventHung, Device: index, Text: fmt.Sprintf(wording.DeviceAnswers, d)})
}
