package report

// This file writes the table of the budgets that jobs share. `gpuarb ps` and /gpu/budgets print it.

import (
	"io"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// budgetRow is a budget that jobs share, on one device.
type budgetRow struct {
	figures.BudgetState
	on figures.BudgetDeviceState
}

// budgetColumns are the columns of the table of shared budgets. Programs rely on their names and
// order.
var budgetColumns = []column[budgetRow]{
	device(func(b budgetRow) int { return b.on.Device }),
	plain("STATE", left, budgetState, 0),
	amount("USED", func(b budgetRow) accounting.Bytes { return b.on.Used }, 0),
	amount("MAX", func(b budgetRow) accounting.Bytes { return b.on.Max }, 0),
	amount("MIN", func(b budgetRow) accounting.Bytes { return b.on.Min }, 0),
	number("JOBS", func(b budgetRow) int { return len(b.Jobs) }, 0),
	plain("SHARED-BY", last, func(b budgetRow) string { return line(b.Name) }, 0),
}

func budgetState(b budgetRow) string {
	if b.on.Over {
		return string(figures.StateOver)
	}
	return "ok"
}

// Budgets writes the table of the budgets that jobs share: a header, and a line per budget and
// device.
func (style Style) Budgets(w io.Writer, s figures.Snapshot) error {
	var rows []budgetRow
	for _, b := range s.Budgets {
		for _, on := range b.Devices {
			rows = append(rows, budgetRow{b, on})
		}
	}
	return table(w, style, budgetColumns, rows)
}
