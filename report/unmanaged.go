package report

import (
	"io"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/figures"
)

// unmanagedRow is what a process that is no client takes of a device.
type unmanagedRow struct {
	*figures.UnmanagedState
	device int
}

var unmanagedColumns = []column[unmanagedRow]{
	number("PID", func(u unmanagedRow) int { return u.PID }, 0),
	plain("USER", left, func(u unmanagedRow) string { return word(u.User) }, 0),
	device(func(u unmanagedRow) int { return u.device }),
	amount("USED", func(u unmanagedRow) accounting.Bytes { return u.Bytes }, 0),
	span("AGE", func(u unmanagedRow) int64 { return u.AgeMs }, 0),
	plain("COMMAND", last, func(u unmanagedRow) string { return line(u.Command) }, 0),
}

// Unmanaged writes the table of processes that use a device and are no clients: by
// device, who takes most first. AGE is since the device was first seen to list it.
func (style Style) Unmanaged(w io.Writer, s figures.Snapshot) error {
	var rows []unmanagedRow
	for d, u := range s.Unmanaged() {
		rows = append(rows, unmanagedRow{u, d.Index})
	}
	return table(w, style, unmanagedColumns, rows)
}
