package report

import (
	"io"
	"strconv"

	"github.com/gpuarb/gpuarb/accounting"
)

// Limit is a limit in force, and where it comes from.
type Limit struct {
	Device int     `json:"device"`
	Name   string  `json:"limit"`  // memory.max, memory.min, streams.max or slots.max
	Value  *uint64 `json:"value"`  // bytes of memory, else a number; null: there is none
	Held   uint64  `json:"held"`   // of the same
	By     *string `json:"set_by"` // a rule, the flags that it was started with, a user; null: nobody
}

// setBy is what set a limit, or nil where nobody did.
func setBy(by string) *string {
	if by == "" {
		return nil
	}
	return &by
}

// memoryLimit is a limit in bytes.
func memoryLimit(device int, name string, value, held accounting.Bytes, by string) Limit {
	l := Limit{Device: device, Name: name, Held: uint64(held), By: setBy(by)}
	if value != accounting.Max {
		number := uint64(value)
		l.Value = &number
	}
	return l
}

// countLimit is a limit on a number of things, where 0 is none.
func countLimit(device int, name string, value, held int, by string) Limit {
	l := Limit{Device: device, Name: name, Held: uint64(max(0, held)), By: setBy(by)}
	if value > 0 {
		number := uint64(value)
		l.Value = &number
	}
	return l
}

// ProcessLimits are the limits in force for a process, those of its job where it has taken
// nothing yet; false where there is no such process.
func ProcessLimits(s accounting.Snapshot, pid int) (all []Limit, ok bool) {
	for _, l := range s.Leases {
		if l.PID == pid {
			all = append(all, memoryLimit(l.Device, "memory.max", l.Budget, l.Used, l.BudgetBy),
				memoryLimit(l.Device, "memory.min", l.Min, l.Used, l.MinBy),
				countLimit(l.Device, "streams.max", l.StreamsMax, l.Streams, l.StreamsBy))
		}
	}
	for _, p := range s.Processes {
		if p.PID == pid && len(all) == 0 {
			return JobLimits(s, p.Job)
		}
	}
	return all, len(all) > 0
}

// JobLimits are the limits of a job; false where there is no such job.
func JobLimits(s accounting.Snapshot, id uint64) (all []Limit, ok bool) {
	for _, j := range s.Jobs {
		if j.ID != id {
			continue
		}
		for _, d := range j.Devices {
			all = append(all, memoryLimit(d.Device, "memory.max", d.Max, d.Used, d.MaxBy),
				memoryLimit(d.Device, "memory.min", d.Min, d.Used, d.MinBy),
				countLimit(d.Device, "streams.max", j.StreamsMax, streamsOf(s, id, d.Device), j.StreamsBy))
		}
		return all, true
	}
	return nil, false
}

// streamsOf is the most streams that a process of a job has on a device.
func streamsOf(s accounting.Snapshot, job uint64, device int) (most int) {
	for _, l := range s.Leases {
		if l.Job == job && l.Device == device {
			most = max(most, l.Streams)
		}
	}
	return most
}

// DeviceLimits are the limits of a device.
func DeviceLimits(s accounting.Snapshot, index int) (all []Limit) {
	for _, d := range s.Devices {
		if d.Index == index {
			all = append(all, countLimit(index, "slots.max", d.SlotsMax, d.SlotsCurrent, d.SlotsBy))
		}
	}
	return all
}

var limitColumns = []column[Limit]{
	number("GPU", func(l Limit) int { return l.Device }, 0),
	plain("LIMIT", left, func(l Limit) string { return l.Name }, 0),
	{"VALUE", right, func(s Style, l Limit) string { return l.spell(s, l.Value) }, 0},
	{"HELD", right, func(s Style, l Limit) string { return l.spell(s, &l.Held) }, 0},
	plain("SET-BY", last, func(l Limit) string {
		if l.By == nil {
			return "-"
		}
		return line(*l.By)
	}, 0),
}

// spell writes an amount of what is limited.
func (l Limit) spell(s Style, n *uint64) string {
	switch {
	case n == nil:
		return "max"
	case l.Name == "memory.max" || l.Name == "memory.min":
		return s.amount(accounting.Bytes(*n))
	}
	return strconv.FormatUint(*n, 10)
}

// Limits writes the table of limits: a header, and a line for each limit and device.
func (style Style) Limits(w io.Writer, limits []Limit) error {
	return table(w, style, limitColumns, limits)
}
