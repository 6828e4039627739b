package report

// This file writes the table of devices. `gpuarb devices` and /gpu/devices print it.

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// deviceRow is a device, and the number of leases on it.
type deviceRow struct {
	figures.DeviceState
	leases int
}

var deviceColumns = []column[deviceRow]{
	device(func(d deviceRow) int { return d.Index }),
	plain("STATE", left, func(d deviceRow) string { return DeviceState(d.DeviceState) }, 0),
	amount("USED", func(d deviceRow) accounting.Bytes { return d.Used }, 0),
	amount("RESERVED", func(d deviceRow) accounting.Bytes { return d.Reserved }, 0),
	amount("FREE", func(d deviceRow) accounting.Bytes { return d.Free }, 0),
	amount("CAPACITY", func(d deviceRow) accounting.Bytes { return d.Capacity }, 0),
	amount("UNMANAGED", func(d deviceRow) accounting.Bytes { return d.Unmanaged }, 3),
	amount("OVERHEAD", func(d deviceRow) accounting.Bytes { return d.Overhead }, 4),
	amount("TOTAL", func(d deviceRow) accounting.Bytes { return d.Total }, 1),
	number("LEASES", func(d deviceRow) int { return d.leases }, 5),
	number("STREAMS", func(d deviceRow) int { return d.Streams }, 6),
	plain("SLOTS", right, func(d deviceRow) string { return fmt.Sprintf("%d/%s", d.SlotsCurrent, count(d.SlotsMax)) }, 2),
	plain("HOLDER", left, func(d deviceRow) string { return owners(d.Owners()) }, 0),
	plain("PCI", left, func(d deviceRow) string { return cell(d.PCI) }, 7),
	plain("NAME", last, func(d deviceRow) string { return line(d.Name + memoryNote(d.DeviceState)) }, 0),
}

// memoryNote says where the total memory of a device comes from, if its driver did not report it.
func memoryNote(d figures.DeviceState) string {
	if !d.IsGPU() {
		return ""
	}
	switch d.TotalFrom {
	case accounting.FromConfiguration:
		return " (memory by the configuration)"
	case accounting.FromProbe:
		return " (memory by CUDA)"
	case accounting.FromMachine:
		return " (memory not known: half of the machine's)"
	}
	return ""
}

// owners names the first job that has a device as a whole, such as "ann:python3[4711]", and the
// number of further jobs.
func owners(holders []figures.HolderState) string {
	first, more := "-", -1
	for _, h := range holders {
		if more++; more == 0 {
			name := cmp.Or(h.JobName, program(h.Command))
			if !strings.HasSuffix(name, "]") { // the name of a shell that claimed it ends with its PID already
				name += fmt.Sprintf("[%d]", h.PID)
			}
			first = cell(h.User + ":" + name)
		}
	}
	if more > 0 {
		first += fmt.Sprintf("+%d", more)
	}
	return first
}

// program returns the name of a program without its folder and arguments.
func program(command string) string {
	name, _, _ := strings.Cut(command, " ")
	return name[strings.LastIndex(name, "/")+1:]
}

// DeviceState returns the state of a device, and whether a job has it as a whole.
func DeviceState(d figures.DeviceState) string {
	switch {
	case d.Lost:
		return string(figures.StateLost)
	case d.Unresponsive:
		return "unresponsive"
	case d.ExclusiveJob != 0:
		return "exclusive"
	case d.Leased:
		return "claimed"
	}
	return "ok"
}

// Devices writes the table of devices. RESERVED is the memory that is reserved by memory.min, used
// or not.
func (style Style) Devices(w io.Writer, s figures.Snapshot) error {
	leases := make(map[int]int)
	for _, l := range s.Leases {
		leases[l.Device]++
	}
	rows := make([]deviceRow, 0, len(s.Devices))
	for _, d := range s.Devices {
		rows = append(rows, deviceRow{d, leases[d.Index]})
	}
	return table(w, style, deviceColumns, rows)
}

// ListDevices names devices in a line, for messages.
func ListDevices(devices []figures.DeviceState) string {
	names := make([]string, len(devices))
	for i, d := range devices {
		known := slices.DeleteFunc([]string{d.Name, d.UUID, d.PCI}, func(s string) bool { return s == "" }) // the processor has no PCI address
		names[i] = fmt.Sprintf("%s (%s)", accounting.IndexName(d.Index), strings.Join(known, ", "))
	}
	return strings.Join(names, ", ")
}
