package report

// This file writes the table of the budgets that jobs share. `gpuarb ps` and /gpu/budgets print it.

import (
	"io"
	"slices"

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
// device. If the selection names a user, it has the budgets that a job of the user shares.
func (style Style) Budgets(w io.Writer, s figures.Snapshot) error {
	return table(w, style, budgetColumns, style.budgets(s))
}

// HasBudgets reports whether the table of shared budgets has a line.
func (style Style) HasBudgets(s figures.Snapshot) bool { return len(style.budgets(s)) > 0 }

// budgets returns the shared budgets that are shown.
func (style Style) budgets(s figures.Snapshot) (rows []budgetRow) {
	sel := style.Selection
	mine := func(id uint64) bool {
		j := s.Job(id)
		return j != nil && sel.ofUser(j.UID, true)
	}
	for _, b := range s.Budgets {
		for _, on := range b.Devices {
			if (sel.UID == nil || slices.ContainsFunc(b.Jobs, mine)) && sel.onDevice(on.Device) {
				rows = append(rows, budgetRow{b, on})
			}
		}
	}
	return rows
}
