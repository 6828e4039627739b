package report

import (
	"io"
	"strconv"

	"github.com/gpuarb/gpuarb/accounting"
)

// budgetRow is a budget that jobs share, on one device.
type budgetRow struct {
	accounting.BudgetState
	on accounting.BudgetDeviceState
}

// budgetColumns are the columns of the table of shared budgets. Their names and order are
// an interface.
var budgetColumns = []column[budgetRow]{
	{"GPU", right, func(b budgetRow) string { return strconv.Itoa(b.on.Device) }},
	{"STATE", left, budgetState},
	{"USED", right, func(b budgetRow) string { return Value(b.on.Used) }},
	{"MAX", right, func(b budgetRow) string { return Value(b.on.Max) }},
	{"MIN", right, func(b budgetRow) string { return Value(b.on.Min) }},
	{"JOBS", right, func(b budgetRow) string { return strconv.Itoa(len(b.Jobs)) }},
	{"SHARED-BY", last, func(b budgetRow) string { return line(b.Name) }},
}

func budgetState(b budgetRow) string {
	if b.on.Over {
		return string(accounting.StateOver)
	}
	return "ok"
}

// Budgets writes the table of the budgets that jobs share: a header, and a line per budget
// and device. Memory is in bytes.
func Budgets(w io.Writer, s accounting.Snapshot) error {
	var rows []budgetRow
	for _, b := range s.Budgets {
		for _, on := range b.Devices {
			rows = append(rows, budgetRow{b, on})
		}
	}
	return table(w, budgetColumns, rows)
}
