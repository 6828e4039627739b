package main

// This file computes what a device has free at the moment, and what is in the way of a new program.
// plan.go prints it for every device, planreserve.go for programs that reserve memory.

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/wording"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/report"
)

// nowPlan is the output of `gpuarb plan --json` without --min and --streams.
type nowPlan struct {
	Devices []deviceNow `json:"devices"`
}

// deviceNow is a device at the moment. Held, Kept, Overhead, Unmanaged, SetAside and Free add up to
// Total.
type deviceNow struct {
	Device    int              `json:"device"`
	Total     accounting.Bytes `json:"device_total_bytes"`
	Free      accounting.Bytes `json:"free_now_bytes"` // bytes that can be reserved now, contexts included
	Context   accounting.Bytes `json:"context_bytes"`  // bytes that a reservation takes in addition, for a context
	Held      accounting.Bytes `json:"held_bytes"`     // bytes that programs under gpuarb have allocated
	Kept      accounting.Bytes `json:"kept_bytes"`     // bytes that are reserved and not used
	Overhead  accounting.Bytes `json:"overhead_bytes"` // bytes of contexts, and those kept for contexts
	Unmanaged accounting.Bytes `json:"unmanaged_bytes"`
	SetAside  accounting.Bytes `json:"set_aside_bytes"` // bytes that the configuration keeps free
	WaitsFor  *string          `json:"waits_for"`       // what a new program would wait for beside bytes; null: nothing

	outside []string // names of the largest programs without gpuarb
	slots   uint64   // slots that are free
	claimed bool     // a job has the device by claim
}

// planNow prints what each device has free.
func (a *app) planNow(names string) error {
	snapshot, devices, err := a.plannedDevices(names)
	if err != nil {
		return err
	}
	plan := nowPlan{Devices: make([]deviceNow, 0, len(devices))}
	for _, d := range devices {
		plan.Devices = append(plan.Devices, nowOn(snapshot, d))
	}
	return a.show(plan, func(w io.Writer) error {
		for _, d := range plan.Devices {
			fmt.Fprintf(w, "GPU %d: free now: %s", d.Device, sizeText(d.Free))
			if d.Context > 0 {
				fmt.Fprintf(w, "; a program's context takes %s of it", sizeText(d.Context))
			}
			fmt.Fprintln(w)
			d.write(w)
		}
		return nil
	})
}

// plannedDevices returns the devices that a plan is about: those that are named, or those that the
// environment lets a program see.
func (a *app) plannedDevices(names string) (s figures.Snapshot, devices []figures.DeviceState, err error) {
	if s, err = a.snapshot(); err != nil {
		return s, nil, err
	}
	devices = figures.GPUs(s.Devices)
	switch {
	case len(devices) == 0:
		return s, nil, errNoDevice
	case names != "":
		if devices, err = namedDevices(devices, names); err != nil {
			return s, nil, fail(exitUnavailable, "--device: %w", err)
		}
	case !a.ambiguous(devices):
		devices = a.visible(devices)
	}
	if devices = filter(devices, func(d figures.DeviceState) bool { return !d.Lost }); len(devices) == 0 {
		return s, nil, fail(exitUnavailable, "no device: those that a program would see are lost or hidden; `gpuarb devices` lists them")
	}
	return s, devices, nil
}

// nowOn returns what a device has free, and what is in the way of a new program there.
func nowOn(s figures.Snapshot, d figures.DeviceState) deviceNow {
	plain := d.Capacity.Less(d.Committed)
	n := deviceNow{Device: d.Index, Total: d.Total, Free: plain, Context: d.Context, Kept: d.Committed.Less(d.Granted),
		Unmanaged: d.Unmanaged, SetAside: d.Reserve, Overhead: d.Total.Less(d.Reserve).Less(d.Unmanaged).Less(d.Capacity), slots: math.MaxUint64, claimed: d.Claims > 0}
	if d.Free > 0 { // it includes idle credit, which is called back for a new program
		n.Free = max(n.Free, d.Free.Plus(d.Context))
	}
	n.Held = d.Committed.Less(n.Kept).Less(n.Free.Less(plain))
	for _, u := range d.UnmanagedBy[:min(len(d.UnmanagedBy), namedOutside)] {
		n.outside = append(n.outside, wording.Owned(u.User, wording.Stranger(u.Command, u.PID)))
	}
	if d.SlotsMax > 0 {
		n.slots = uint64(max(0, d.SlotsMax-d.SlotsCurrent))
	}
	if text := inTheWay(s, d); text != "" {
		n.slots, n.WaitsFor = 0, &text
	}
	return n
}

// namedOutside is how many programs without gpuarb a plan names for each device.
const namedOutside = 3

// inTheWay says what a new program would wait for on a device, however few bytes it takes; "":
// nothing.
func inTheWay(s figures.Snapshot, d figures.DeviceState) string {
	if d.ExclusiveJob != 0 {
		for _, h := range d.Owners() {
			return fmt.Sprintf("%s has it alone (--exclusive)", owned(h.User, h.JobName, h.Command, h.PID))
		}
	}
	if d.SlotsMax > 0 && d.SlotsCurrent >= d.SlotsMax {
		return fmt.Sprintf("all of its slots are taken (slots.max is %d): `gpuarb jobs --device %d` shows by whom", d.SlotsMax, d.Index)
	}
	if d.Free > 0 {
		return ""
	}
	ahead := filter(s.Queue, func(t figures.TicketState) bool {
		return (t.Device == d.Index || t.Device < 0) && (t.Reason == "device_full" || t.Reason == "slots")
	})
	if len(ahead) == 0 {
		return ""
	}
	t := ahead[0]
	wants := t.Wants
	if t.WantsBytes > 0 {
		wants = t.WantsBytes.Human()
	}
	text := fmt.Sprintf("%s is ahead: it has waited for %s for %s", owned(t.User, t.JobName, t.Command, t.PID), wants,
		wording.Span(time.Duration(t.WaitedMs)*time.Millisecond))
	if more := len(ahead) - 1; more > 0 {
		text += fmt.Sprintf(", and %d more (`gpuarb queue --device %d`)", more, d.Index)
	}
	return text
}

// owned names a program with its user: "ann's model-c (python3[42])".
func owned(user, job, command string, pid int) string {
	return report.Escape(wording.Owned(user, wording.Process("", command, job, pid)))
}

// write prints what takes the memory of the device, and what is in the way of a new program.
func (n *deviceNow) write(w io.Writer) {
	var parts []string
	for _, p := range []struct {
		bytes accounting.Bytes
		text  string
	}{{n.Held, "programs hold %s"}, {n.Kept, "%s more is reserved"}, {n.Overhead, "contexts take %s"}, {n.SetAside, "the configuration sets %s aside"}} {
		if p.bytes > 0 {
			parts = append(parts, fmt.Sprintf(p.text, sizeText(p.bytes)))
		}
	}
	if n.Unmanaged > 0 {
		who := ""
		if len(n.outside) > 0 {
			who = " (" + report.Escape(strings.Join(n.outside, ", ")) + ")"
		}
		parts = append(parts, fmt.Sprintf("programs without gpuarb%s hold %s", who, sizeText(n.Unmanaged)))
	}
	if len(parts) > 0 {
		fmt.Fprintf(w, "  of %s, %s\n", sizeText(n.Total), strings.Join(parts, ", "))
	}
	if n.WaitsFor != nil {
		fmt.Fprintf(w, "  %s\n", *n.WaitsFor)
	}
}

// fit returns how many programs can begin now, if each reserves least bytes beside its context.
func (n *deviceNow) fit(least accounting.Bytes) uint64 {
	if each := least.Plus(n.Context); each > 0 {
		return min(n.slots, uint64(n.Free/each))
	}
	return n.slots
}

// ownBudget returns the shared budget with the least room that the programs of this user have on a
// device: the user's own limit, or that of a rule. nil: there is none.
func ownBudget(s figures.Snapshot, device int) (name string, on *figures.BudgetDeviceState) {
	for _, b := range s.Budgets {
		if b.Scope != "user" || b.UID != uint32(os.Getuid()) {
			continue
		}
		i := slices.IndexFunc(b.Devices, func(at figures.BudgetDeviceState) bool { return at.Device == device && at.Max != accounting.Max })
		if i >= 0 && (on == nil || b.Devices[i].Free < on.Free) {
			name, on = b.Name, &b.Devices[i]
		}
	}
	return name, on
}

// counted returns a number of things: "1 copy", "2 copies".
func counted(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// sizeText formats an amount. It formats accounting.Max as an amount too, which elsewhere means no
// limit.
func sizeText(b accounting.Bytes) string {
	return min(b, accounting.Max-1).Human()
}
