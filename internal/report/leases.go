package report

// This file writes the tables of leases: /gpu/leases, and `gpuarb ps`, which adds claims.

import (
	"cmp"
	"io"
	"slices"
	"strconv"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// leaseColumns are the columns of the table of leases. Programs rely on their names and order.
var leaseColumns = []column[leaseRow]{
	number("PID", func(l leaseRow) int { return l.PID }, 0),
	plain("USER", left, func(l leaseRow) string { return cell(l.User) }, 0),
	device(func(l leaseRow) int { return l.Device }),
	plain("STATE", left, func(l leaseRow) string { return cell(string(l.State)) }, 0),
	amount("USED", func(l leaseRow) accounting.Bytes { return l.Used }, 0),
	amount("BUDGET", func(l leaseRow) accounting.Bytes { return l.Budget }, 0),
	amount("MIN", func(l leaseRow) accounting.Bytes { return l.Min }, 4),
	amount("PEAK", func(l leaseRow) accounting.Bytes { return l.Peak }, 5),
	amount("OVERHEAD", func(l leaseRow) accounting.Bytes { return l.Overhead }, 7),
	number("STREAMS", func(l leaseRow) int { return l.Streams }, 6),
	plain("SLOT", right, func(l leaseRow) string { return l.slot }, 8),
	span("AGE", func(l leaseRow) int64 { return l.AgeSeconds * 1000 }, 2),
	column[leaseRow]{"UTIL", right, Style.util, 3},
	span("IDLE", func(l leaseRow) int64 { return l.UnusedMs }, 1),
	plain("COMMAND", last, func(l leaseRow) string { return Named(l.JobName, l.Command) }, 0),
}

// containerColumns come before COMMAND in gpuarb ps if a program runs in a container.
var containerColumns = []column[leaseRow]{
	plain("CONTAINER", left, func(l leaseRow) string { return cell(l.Container[:min(shortID, len(l.Container))]) }, 9),
	plain("NSPID", right, func(l leaseRow) string { return cell(nspid(l.NSPID)) }, 10),
}

// shortID is the number of characters of a container ID that docker ps and podman ps show.
const shortID = 12

// inContainer reports whether a program runs in a container, or in a PID namespace of its own.
func inContainer(l leaseRow) bool { return l.Container != "" || l.NSPID != 0 && l.NSPID != l.PID }

// leaseRow is a lease or a claim, with the text of the SLOT column.
type leaseRow struct {
	*figures.LeaseState
	slot string
}

// util formats the utilisation of the device by the process of a lease: in percent; "-": the device
// does not tell.
func (s Style) util(l leaseRow) string {
	switch {
	case l.Util == nil:
		return "-"
	case s.Human:
		return strconv.Itoa(*l.Util) + "%"
	}
	return strconv.Itoa(*l.Util)
}

func leaseRows(s figures.Snapshot) []leaseRow {
	rows := make([]leaseRow, len(s.Leases))
	for i := range s.Leases {
		rows[i] = leaseRow{&s.Leases[i], "-"}
		if s.Leases[i].Slot {
			rows[i].slot = "1"
		}
	}
	return rows
}

// Leases writes the table of leases: a header, and a line per lease in the order of the snapshot.
// SLOT is the number of slots that the lease holds.
func (style Style) Leases(w io.Writer, s figures.Snapshot) error {
	return table(w, style, leaseColumns, leaseRows(s))
}

// Programs writes the table of leases together with the jobs that have a device as a whole. Leases
// of such a job have "claim" or "exclusive" in SLOT. If the job has no lease, it gets a line of its
// own. If a program runs in a container, the table shows containers and the PIDs in them.
func (style Style) Programs(w io.Writer, s figures.Snapshot) error {
	rows := style.programs(s)
	columns := leaseColumns
	if slices.ContainsFunc(rows, inContainer) {
		columns = slices.Insert(slices.Clone(columns), len(columns)-1, containerColumns...)
	}
	return table(w, style, columns, rows)
}

// programs returns the leases and claims that are shown.
func (style Style) programs(s figures.Snapshot) []leaseRow {
	rows := leaseRows(s)
	for i := range s.Devices {
		rows = addOwners(rows, &s, &s.Devices[i])
	}
	slices.SortStableFunc(rows, func(x, y leaseRow) int { return cmp.Compare(x.Device, y.Device) })
	return style.Selection.leases(rows)
}

// leases returns the rows of the selection.
func (sel Selection) leases(rows []leaseRow) []leaseRow {
	rows = slices.DeleteFunc(rows, func(l leaseRow) bool {
		return !sel.ofUser(l.UID, true) || !sel.onDevice(l.Device) || !sel.idle(l.UnusedMs)
	})
	sortRows(sel, leaseColumns, rows)
	return rows
}

// addOwners marks the leases of jobs that have the device as a whole. For each such job without a
// lease it adds a row.
func addOwners(rows []leaseRow, s *figures.Snapshot, d *figures.DeviceState) []leaseRow {
	for _, h := range d.Owners() {
		leases := 0
		for k := range rows {
			if l := rows[k].LeaseState; l.Device == d.Index && l.Job == h.Job {
				rows[k].slot = string(h.Kind)
				leases++
			}
		}
		if leases == 0 {
			l := &figures.LeaseState{PID: h.PID, User: h.User, UID: h.UID, Device: d.Index, State: "-",
				Budget: accounting.Max, AgeSeconds: h.AgeMs / 1000, UnusedMs: h.AgeMs, JobName: h.JobName, Command: h.Command}
			if j := s.Job(h.Job); j != nil {
				for _, on := range j.Devices {
					if on.Device == d.Index {
						l.Budget, l.Min = on.Max, on.Min
					}
				}
			}
			rows = append(rows, leaseRow{l, string(h.Kind)})
		}
	}
	return rows
}

// LeaseColumns returns the names by which `gpuarb ps` sorts.
func LeaseColumns() []string { return columnNames(leaseColumns) }
