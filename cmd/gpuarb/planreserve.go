package main

// This file has `gpuarb plan --min`, which computes how many programs can reserve memory at once,
// now and on devices without other programs. plannow.go says what is free now.

import (
	"errors"
	"fmt"
	"io"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// reservationPlan is the output of `gpuarb plan --min --json`.
type reservationPlan struct {
	Arms      uint64              `json:"arms"` // the same as copies
	Copies    uint64              `json:"copies"`
	AtOnce    uint64              `json:"at_once"`      // how many run at once if each reserves on every device that it is given, and no other program runs
	AtOnceAny uint64              `json:"at_once_any"`  // the same with --device any, where each has a device that no other has by that flag or by claim
	Now       uint64              `json:"now"`          // how many begin now if each reserves on every device that it is given
	NowAny    uint64              `json:"now_any"`      // the same with --device any
	Emptiest  uint64              `json:"now_emptiest"` // the same with --device emptiest, where each shares one device
	Devices   []reservationDevice `json:"devices"`
}

// reservationDevice is the plan for one device on which each copy reserves memory.
type reservationDevice struct {
	deviceNow
	Min    accounting.Bytes `json:"min_bytes"`   // bytes that each copy reserves
	All    accounting.Bytes `json:"total_bytes"` // bytes of all copies together, with their contexts
	Room   accounting.Bytes `json:"room_bytes"`  // bytes that can be reserved on the device if no other job is there
	Most   accounting.Bytes `json:"most_bytes"`  // largest possible reservation of one copy, in bytes
	Given  bool             `json:"given"`       // whether `gpuarb run --min` reserves here and gives the program the device
	AtOnce uint64           `json:"at_once"`     // how many copies run here at once if no other program runs
	Now    uint64           `json:"now"`         // how many copies begin here now

	ownName   string                     // shared budget of the user, if it has no room for all copies
	ownBudget *figures.BudgetDeviceState // nil: it has, or there is none
}

// planReservations prints how many of the copies run at once if each reserves memory.
func (a *app) planReservations(copies uint64, text, names string) error {
	minSize, err := accounting.ParseSize(text)
	if err == nil && minSize == (accounting.Size{}) {
		err = errors.New("must be above 0")
	}
	if err != nil {
		return fail(exitUsage, "--min: %w", err)
	}
	snapshot, devices, err := a.plannedDevices(names)
	if err != nil {
		return err
	}
	plan := reservationPlan{Arms: copies, Copies: copies, Devices: []reservationDevice{}}
	for _, d := range devices {
		plan.Devices = append(plan.Devices, planDevice(copies, minSize, snapshot, d))
	}
	for i, d := range plan.given() {
		plan.Emptiest = min(copies, plan.Emptiest+d.Now)
		plan.AtOnceAny = min(copies, plan.AtOnceAny+min(1, d.AtOnce))
		if !d.claimed {
			plan.NowAny = min(copies, plan.NowAny+min(1, d.Now))
		}
		if i == 0 || d.AtOnce < plan.AtOnce {
			plan.AtOnce = d.AtOnce
		}
		if i == 0 || d.Now < plan.Now {
			plan.Now = d.Now
		}
	}
	return a.show(plan, plan.write)
}

// given returns the devices on which the copies reserve memory.
func (plan *reservationPlan) given() []reservationDevice {
	return filter(plan.Devices, func(d reservationDevice) bool { return d.Given })
}

func planDevice(copies uint64, minSize accounting.Size, s figures.Snapshot, d figures.DeviceState) reservationDevice {
	p := reservationDevice{deviceNow: nowOn(s, d), Room: d.Total.Less(d.Reserve).Less(d.Unmanaged), Most: mostMin(d)}
	if p.Min = minSize.Of(d.Total); minSize.Max || minSize.PerMille == 1000 {
		p.Min = p.Most
	}
	p.Given = p.Min <= p.Most
	p.All = p.Min.Plus(p.Context).Times(copies)
	if each := p.Min.Plus(p.Context); each > 0 {
		p.AtOnce = min(copies, uint64(p.Room/each))
	}
	p.Now = min(copies, p.fit(p.Min))
	if name, own := ownBudget(s, d.Index); own != nil && p.Min > 0 && uint64(own.Free/p.Min) < copies {
		p.Now, p.ownName, p.ownBudget = min(p.Now, uint64(own.Free/p.Min)), name, own
		p.AtOnce, p.Given = min(p.AtOnce, uint64(own.Max/p.Min)), p.Given && p.Min <= own.Max
	}
	return p
}

// write prints for each device how many copies begin now, and what takes its memory.
func (plan *reservationPlan) write(w io.Writer) error {
	given := plan.given()
	for _, d := range plan.Devices {
		line := d.line(plan.Copies)
		switch {
		case d.Given:
		case len(given) == 0 || d.ownBudget != nil:
			line = d.tooMuch() + ": `gpuarb run` refuses it"
		default:
			line = d.tooMuch() + ": the programs are not given this device"
		}
		fmt.Fprintf(w, "GPU %d: %s\n", d.Device, line)
		if d.Given && d.Now < plan.Copies {
			d.explain(w, plan.Copies)
		}
	}
	if len(given) > 1 {
		fmt.Fprintf(w, "Each copy reserves on these %d devices: now %d of %d. With --device emptiest each shares one of them: now %d of %d. "+
			"With --device any each has one that no other has by that flag or by claim: now %d of %d\n",
			len(given), plan.Now, plan.Copies, plan.Emptiest, plan.Copies, plan.NowAny, plan.Copies)
	}
	return nil
}

// tooMuch says that a reservation is larger than any job could use.
func (d *reservationDevice) tooMuch() string {
	if own := d.ownBudget; own != nil && d.Min > own.Max {
		return fmt.Sprintf("%s is more than the budget of %s (memory.max), %s", sizeText(d.Min), d.ownName, sizeText(own.Max))
	}
	text := fmt.Sprintf("%s could never be used in full: %s is the most that can be reserved", sizeText(d.Min), sizeText(d.Most))
	if d.Context > 0 {
		text += fmt.Sprintf(" beside a context (%s)", sizeText(d.Context))
	}
	return text
}

// line says how many copies begin now.
func (d *reservationDevice) line(copies uint64) string {
	subject, verdict := fmt.Sprintf("%s need %s", counted(copies, "copy", "copies"), sizeText(d.All)), "all run at once"
	with := " with their contexts"
	switch {
	case copies == 1:
		subject, with = "one copy needs "+sizeText(d.All), " with its context"
		if verdict = "it runs at once"; d.Now == 0 {
			verdict = "it would wait"
		}
	case d.Now == 0:
		verdict = "all would wait"
	case d.Now < copies:
		verdict = fmt.Sprintf("%d run at once, %d would wait", d.Now, copies-d.Now)
	}
	if d.Context > 0 {
		subject += with
	}
	if copies > 1 {
		subject += fmt.Sprintf(" (%s each)", sizeText(d.Min.Plus(d.Context)))
	}
	return fmt.Sprintf("%s; free now: %s: %s", subject, sizeText(d.Free), verdict)
}

// explain prints why not all copies begin now: what takes the memory, the budget of the user, the
// request that is ahead, and how many would run if no other program ran.
func (d *reservationDevice) explain(w io.Writer, copies uint64) {
	d.deviceNow.write(w)
	if own := d.ownBudget; own != nil {
		fmt.Fprintf(w, "  the budget of %s (memory.max) is %s, and %s of it is free\n", d.ownName, sizeText(own.Max), sizeText(own.Free))
	}
	switch {
	case d.AtOnce == 0:
		fmt.Fprintln(w, "  none can run until programs without gpuarb free memory: `gpuarb jobs` lists them")
	case d.AtOnce > d.Now && copies > 1:
		fmt.Fprintf(w, "  if no other program ran under gpuarb, %d would run at once\n", d.AtOnce)
	}
}
