package report

// This file writes the table of processes that use a device without gpuarb.

import (
	"io"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// unmanagedRow is the use of a device by a process without gpuarb.
type unmanagedRow struct {
	*figures.UnmanagedState
	device int
}

var unmanagedColumns = []column[unmanagedRow]{
	number("PID", func(u unmanagedRow) int { return u.PID }, 0),
	plain("USER", left, func(u unmanagedRow) string { return cell(u.User) }, 0),
	device(func(u unmanagedRow) int { return u.device }),
	amount("USED", func(u unmanagedRow) accounting.Bytes { return u.Bytes }, 0),
	span("AGE", func(u unmanagedRow) int64 { return u.AgeMs }, 0),
	plain("COMMAND", last, func(u unmanagedRow) string { return line(u.Command) }, 0),
}

// Unmanaged writes the table of processes that use a device without gpuarb, by device, the largest
// first. AGE is the time since the device first listed the process.
func (style Style) Unmanaged(w io.Writer, s figures.Snapshot) error {
	var rows []unmanagedRow
	for d, u := range s.Unmanaged() {
		rows = append(rows, unmanagedRow{u, d.Index})
	}
	return table(w, style, unmanagedColumns, rows)
}
