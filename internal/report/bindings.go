package report

// This file lists the jobs of cgroups, for `gpuarb job list`. holders.go lists all jobs with what they hold.

import (
	"io"
	"strconv"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// Binding is the job of a cgroup on one device.
type Binding struct {
	Job       uint64            `json:"job"`
	Name      string            `json:"job_name"`
	State     figures.State     `json:"state"`
	Device    Index             `json:"device"`
	Max       *accounting.Bytes `json:"max_bytes"` // null: no limit
	Min       accounting.Bytes  `json:"min_bytes"`
	Used      accounting.Bytes  `json:"used_bytes"`
	Peak      accounting.Bytes  `json:"peak_bytes"`
	Unmanaged accounting.Bytes  `json:"unmanaged_bytes"` // used without the library, and counted against the budget
	Processes []int             `json:"processes"`
	NoProcess bool              `json:"no_process"` // no process was in the cgroup in the first ten minutes, and none has come since
	AgeMs     int64             `json:"age_ms"`
	Until     string            `json:"until"`
	OnLoss    string            `json:"on_loss"`
	Contexts  string            `json:"contexts"`
	Inside    *uint64           `json:"inside"` // null: inside none
	Allows    []string          `json:"allows"` // what programs inside may do besides using the budget
	Cgroup    string            `json:"cgroup"`
	Wall
}

var bindingColumns = []column[Binding]{
	plain("JOB", right, func(b Binding) string { return strconv.FormatUint(b.Job, 10) }, 0),
	plain("NAME", left, func(b Binding) string { return Escape(b.Name) }, 0),
	device(func(b Binding) int { return int(b.Device) }),
	plain("STATE", left, func(b Binding) string { return string(b.State) }, 3),
	{"MEMORY", right, func(s Style, b Binding) string {
		if b.Max == nil {
			return "-"
		}
		return s.amount(*b.Max)
	}, 0},
	amount("MIN", func(b Binding) accounting.Bytes { return b.Min }, 2),
	amount("USED", func(b Binding) accounting.Bytes { return b.Used }, 0),
	amount("PEAK", func(b Binding) accounting.Bytes { return b.Peak }, 1),
	amount("UNMANAGED", func(b Binding) accounting.Bytes { return b.Unmanaged }, 2),
	number("PROCESSES", func(b Binding) int { return len(b.Processes) }, 4),
	span("AGE", func(b Binding) int64 { return b.AgeMs }, 5),
	plain("OPTIONS", left, Binding.options, 2),
	plain("ALLOWS", left, func(b Binding) string { return cell(strings.Join(b.Allows, ",")) }, 5),
	plain("HELD BY", left, func(b Binding) string { return cell(string(orZero(b.HeldBy))) }, 6),
	plain("CGROUP", last, func(b Binding) string { return Escape(b.Cgroup) + noProcess(b.NoProcess) + b.text() }, 0),
}

// options returns the options that differ from the defaults; "-": none does.
func (b Binding) options() string {
	var all []string
	switch {
	case strings.HasPrefix(b.Until, figures.UntilIdle):
		all = append(all, b.Until)
	case b.Until != figures.UntilGone:
		all = append(all, "until="+b.Until)
	}
	if b.OnLoss != figures.LossClosed {
		all = append(all, "on-loss="+b.OnLoss)
	}
	if b.Contexts != figures.ContextsOutside {
		all = append(all, "contexts="+b.Contexts)
	}
	return cell(strings.Join(all, ","))
}

// bindings returns a row for each job of a cgroup and each GPU.
func bindings(jobs []figures.JobState) (rows []Binding) {
	for i := range jobs {
		j := &jobs[i]
		if j.Bound == "" {
			continue
		}
		terms := figures.BoundTerms{Until: figures.UntilGone, OnLoss: figures.LossClosed, Contexts: figures.ContextsOutside}
		if j.BoundTerms != nil {
			terms = *j.BoundTerms
		}
		for i := range j.Devices {
			d := &j.Devices[i]
			if d.Device == accounting.ProcessorIndex {
				continue
			}
			rows = append(rows, Binding{Job: j.ID, Name: j.Name, State: j.State, Device: Index(d.Device), Max: Unless(d.Max, accounting.Max), Min: d.Min,
				Used: d.Used, Peak: d.Peak, Unmanaged: d.Unmanaged, Processes: append([]int{}, j.Processes...), NoProcess: j.NoProcess, AgeMs: j.AgeMs, Until: terms.Until, OnLoss: terms.OnLoss, Contexts: terms.Contexts, Inside: Unless(j.Inside, 0), Allows: append([]string{}, j.Allows...), Cgroup: j.Bound, Wall: wallOf(d)})
		}
	}
	return rows
}

// Bindings writes the jobs of cgroups as a table.
func (style Style) Bindings(w io.Writer, jobs []figures.JobState) error {
	return table(w, style, bindingColumns, bindings(jobs))
}

// BindingsJSON writes the jobs of cgroups as one JSON array, an object per line.
func BindingsJSON(w io.Writer, jobs []figures.JobState) error {
	return jsonLines(w, each(bindings(jobs), func(b Binding) Binding { return b }))
}
