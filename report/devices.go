package report

import (
	"fmt"
	"io"
	"strconv"

	"github.com/gpuarb/gpuarb/accounting"
)

// deviceRow is a device with how many leases are on it.
type deviceRow struct {
	accounting.DeviceState
	leases int
}

var deviceColumns = []column[deviceRow]{
	{"GPU", right, func(d deviceRow) string { return strconv.Itoa(d.Index) }},
	{"STATE", left, func(d deviceRow) string { return deviceState(d.DeviceState) }},
	{"USED", right, func(d deviceRow) string { return compact(d.Used) }},
	{"RESERVED", right, func(d deviceRow) string { return compact(d.Committed) }},
	{"CAPACITY", right, func(d deviceRow) string { return compact(d.Capacity) }},
	{"UNMANAGED", right, func(d deviceRow) string { return compact(d.Unmanaged) }},
	{"OVERHEAD", right, func(d deviceRow) string { return compact(d.Overhead) }},
	{"TOTAL", right, func(d deviceRow) string { return compact(d.Total) }},
	{"LEASES", right, func(d deviceRow) string { return strconv.Itoa(d.leases) }},
	{"STREAMS", right, func(d deviceRow) string { return strconv.Itoa(d.Streams) }},
	{"SLOTS", right, func(d deviceRow) string { return fmt.Sprintf("%d/%s", d.SlotsCurrent, count(d.SlotsMax)) }},
	{"PCI", left, func(d deviceRow) string { return word(d.PCI) }},
	{"NAME", last, func(d deviceRow) string { return line(d.Name) }},
}

// deviceState is how a device is doing, and whether somebody has it as a whole.
func deviceState(d accounting.DeviceState) string {
	switch {
	case d.Lost:
		return string(accounting.StateLost)
	case d.Unresponsive:
		return "unresponsive"
	case d.ExclusiveJob != 0:
		return "exclusive"
	case d.Leased:
		return "leased"
	}
	return "ok"
}

// Devices writes the table of devices for people: sizes are rounded, RESERVED is
// what is granted or set aside for a memory.min.
func Devices(w io.Writer, s accounting.Snapshot) error {
	leases := make(map[int]int)
	for _, l := range s.Leases {
		leases[l.Device]++
	}
	rows := make([]deviceRow, 0, len(s.Devices))
	for _, d := range s.Devices {
		rows = append(rows, deviceRow{d, leases[d.Index]})
	}
	return table(w, deviceColumns, rows)
}
