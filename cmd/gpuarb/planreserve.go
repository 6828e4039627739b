package main

// This file has `gpuarb plan --min`, which computes how many programs can reserve memory at once.

import (
	"errors"
	"fmt"
	"io"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// reservationPlan is the output of `gpuarb plan --min --json`.
type reservationPlan struct {
	Arms      uint64              `json:"arms"`
	AtOnce    uint64              `json:"at_once"`     // how many run at once if each reserves on every device that it is given
	AtOnceAny uint64              `json:"at_once_any"` // how many run at once with --device any, where each takes one device
	Devices   []reservationDevice `json:"devices"`
}

// reservationDevice is the plan for one device on which each of the arms reserves memory.
type reservationDevice struct {
	Device  int              `json:"device"`
	Min     accounting.Bytes `json:"min_bytes"`     // bytes that each arm reserves
	Context accounting.Bytes `json:"context_bytes"` // bytes that are reserved in addition, for a context
	Total   accounting.Bytes `json:"total_bytes"`   // bytes of all arms together
	Room    accounting.Bytes `json:"room_bytes"`    // bytes that can be reserved on the device if no other job is there
	Most    accounting.Bytes `json:"most_bytes"`    // largest possible reservation of one arm, in bytes
	Given   bool             `json:"given"`         // whether `gpuarb run --min` reserves here and gives the program the device
	AtOnce  uint64           `json:"at_once"`       // how many arms run here at once
}

// planReservations prints how many of the arms run at once if each reserves memory.
func (a *app) planReservations(arms uint64, text string) error {
	minSize, err := accounting.ParseSize(text)
	if err == nil && minSize == (accounting.Size{}) {
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
	for _, d := range figures.GPUs(snapshot.Devices) {
		if !d.Lost {
			plan.Devices = append(plan.Devices, planDevice(arms, minSize, d))
		}
	}
	for i, d := range filter(plan.Devices, func(d reservationDevice) bool { return d.Given }) {
		if plan.AtOnceAny = min(arms, plan.AtOnceAny+d.AtOnce); i == 0 || d.AtOnce < plan.AtOnce {
			plan.AtOnce = d.AtOnce
		}
	}
	err = a.show(plan, plan.write)
	if err == nil && len(figures.GPUs(snapshot.Devices)) == 0 {
		return errNoDevice
	}
	return err
}

// write prints a line for each device.
func (plan *reservationPlan) write(w io.Writer) error {
	given := filter(plan.Devices, func(d reservationDevice) bool { return d.Given })
	for _, d := range plan.Devices {
		line := d.line(plan.Arms)
		switch {
		case d.Given:
		case len(given) == 0:
			line = d.tooMuch() + ": `gpuarb run` refuses it"
		default:
			line = d.tooMuch() + ": the programs are not given this device"
		}
		fmt.Fprintf(w, "GPU %d: %s\n", d.Device, line)
	}
	if len(given) > 1 {
		fmt.Fprintf(w, "Each reserves on these %d devices: %d run at once. With --device any each takes one of them: %d run at once\n",
			len(given), plan.AtOnce, plan.AtOnceAny)
	}
	return nil
}

func planDevice(arms uint64, minSize accounting.Size, d figures.DeviceState) reservationDevice {
	p := reservationDevice{Device: d.Index, Context: d.Context, Room: d.Total.Less(d.Reserve).Less(d.Unmanaged)}
	p.Most = mostMin(d)
	if p.Min = minSize.Of(d.Total); minSize.Max || minSize.PerMille == 1000 {
		p.Min = p.Most
	}
	p.Given = p.Min <= p.Most
	each := p.Min.Plus(p.Context)
	p.Total = each.Times(arms)
	if each > 0 {
		p.AtOnce = min(arms, uint64(p.Room/each))
	}
	return p
}

// tooMuch says that a reservation is larger than any job could use.
func (d *reservationDevice) tooMuch() string {
	text := fmt.Sprintf("%s could never be used in full: %s is the most that can be reserved", sizeText(d.Min), sizeText(d.Most))
	if d.Context > 0 {
		text += fmt.Sprintf(" beside a context (%s)", sizeText(d.Context))
	}
	return text
}

// line says how many of the arms run at once.
func (d *reservationDevice) line(arms uint64) string {
	all := "all run at once"
	switch {
	case d.AtOnce == 0:
		all = "none can run while programs without gpuarb use the rest"
	case d.AtOnce < arms:
		all = fmt.Sprintf("%d run at once", d.AtOnce)
	}
	return fmt.Sprintf("%d arms × (%s + %s for a context) = %s, of %s: %s",
		arms, sizeText(d.Min), sizeText(d.Context), sizeText(d.Total), sizeText(d.Room), all)
}

// sizeText formats an amount. It formats accounting.Max as an amount too, which elsewhere means no
// limit.
func sizeText(b accounting.Bytes) string {
	return min(b, accounting.Max-1).Human()
}
