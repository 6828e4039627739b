package main

import (
	"errors"
	"fmt"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/config"
)

// reservationPlan is what `gpuarb plan --min --json` prints.
type reservationPlan struct {
	Arms    uint64              `json:"arms"`
	Devices []reservationDevice `json:"devices"`
}

// reservationDevice is what arms come to that each reserve memory on a device.
type reservationDevice struct {
	Device  int              `json:"device"`
	Min     accounting.Bytes `json:"min_bytes"`     // that each reserves
	Context accounting.Bytes `json:"context_bytes"` // that is reserved beside it
	Total   accounting.Bytes `json:"total_bytes"`   // all of them together
	Room    accounting.Bytes `json:"room_bytes"`    // that can be reserved on the device, were nobody else there
	AtOnce  uint64           `json:"at_once"`       // how many of them run at once
}

// planReservations tells how many of the arms run at once that each reserve memory.
func (a *app) planReservations(arms uint64, text string) error {
	least, err := config.ParseSize(text)
	if err == nil && least == (arbiter.Size{}) {
		err = errors.New("must be above 0")
	}
	if err != nil {
		return fail(exitUsage, "--min: %w", err)
	}
	snapshot, err := a.snapshot()
	if err != nil {
		return err
	}
	plan := reservationPlan{Arms: arms, Devices: []reservationDevice{}}
	for _, d := range snapshot.Devices {
		if !d.Lost {
			plan.Devices = append(plan.Devices, planDevice(arms, least, d))
		}
	}
	if a.json {
		return a.printJSON(plan)
	}
	for _, d := range plan.Devices {
		if err := d.print(a, arms); err != nil {
			return err
		}
	}
	return nil
}

func planDevice(arms uint64, least arbiter.Size, d accounting.DeviceState) reservationDevice {
	p := reservationDevice{Device: d.Index, Context: d.Context, Room: d.Total.Less(d.Reserve).Less(d.Unmanaged)}
	if p.Min = least.Of(d.Total); least.Max || least.PerMille == 1000 {
		p.Min = p.Room.Less(p.Context)
	}
	each := p.Min.Plus(p.Context)
	p.Total = each.Times(arms)
	if each > 0 {
		p.AtOnce = min(arms, uint64(p.Room/each))
	}
	return p
}

// print writes the line of a device.
func (d *reservationDevice) print(a *app, arms uint64) error {
	all := "all run at once"
	switch {
	case d.AtOnce == 0:
		all = "none can run"
	case d.AtOnce < arms:
		all = fmt.Sprintf("%d run at once", d.AtOnce)
	}
	_, err := fmt.Fprintf(a.stdout, "GPU %d: %d arms × (%s + %s for a context) = %s, of %s: %s\n",
		d.Device, arms, sizeText(d.Min), sizeText(d.Context), sizeText(d.Total), sizeText(d.Room), all)
	return err
}
