package report

import (
	"cmp"
	"io"
	"slices"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/figures"
)

// leaseColumns are the columns of the table of leases. Their names and order are
// an interface.
var leaseColumns = []column[leaseRow]{
	number("PID", func(l leaseRow) int { return l.PID }, 0),
	plain("USER", left, func(l leaseRow) string { return word(l.User) }, 0),
	device(func(l leaseRow) int { return l.Device }),
	plain("STATE", left, func(l leaseRow) string { return word(string(l.State)) }, 0),
	amount("USED", func(l leaseRow) accounting.Bytes { return l.Used }, 0),
	amount("BUDGET", func(l leaseRow) accounting.Bytes { return l.Budget }, 0),
	amount("MIN", func(l leaseRow) accounting.Bytes { return l.Min }, 2),
	amount("PEAK", func(l leaseRow) accounting.Bytes { return l.Peak }, 3),
	amount("OVERHEAD", func(l leaseRow) accounting.Bytes { return l.Overhead }, 5),
	number("STREAMS", func(l leaseRow) int { return l.Streams }, 4),
	plain("SLOT", right, func(l leaseRow) string { return l.slot }, 6),
	span("AGE", func(l leaseRow) int64 { return l.AgeSeconds * 1000 }, 1),
	plain("COMMAND", last, func(l leaseRow) string { return Named(l.JobName, l.Command) }, 0),
}

// containerColumns stand before COMMAND in gpuarb ps where there is a program in a container.
var containerColumns = []column[leaseRow]{
	plain("CONTAINER", left, func(l leaseRow) string { return word(l.Container[:min(shortID, len(l.Container))]) }, 7),
	plain("NSPID", right, func(l leaseRow) string { return word(nspid(l.NSPID)) }, 8),
}

// shortID is as much of a container's identity as docker ps and podman ps show.
const shortID = 12

// contained tells whether a program runs in a container, or in a PID namespace of its own.
func contained(l leaseRow) bool { return l.Container != "" || l.NSPID != 0 && l.NSPID != l.PID }

// leaseRow is a lease, or a claim, and how it has its device.
type leaseRow struct {
	*figures.LeaseState
	slot string
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

// Leases writes the table of leases: a header, and a line per lease in the
// snapshot's order. SLOT is the number of slots held.
func (style Style) Leases(w io.Writer, s figures.Snapshot) error {
	return table(w, style, leaseColumns, leaseRows(s))
}

// Programs writes the table of leases with those who have a device as a whole: a line
// for each who has no lease there, and "claim" or "exclusive" as the slot of those who have. Where one of them runs in a
// container, each has its container and its PID there.
func (style Style) Programs(w io.Writer, s figures.Snapshot) error {
	rows := leaseRows(s)
	for i := range s.Devices {
		rows = addOwners(rows, &s, &s.Devices[i])
	}
	slices.SortStableFunc(rows, func(x, y leaseRow) int { return cmp.Compare(x.Device, y.Device) })
	columns := leaseColumns
	if slices.ContainsFunc(rows, contained) {
		columns = slices.Insert(slices.Clone(columns), len(columns)-1, containerColumns...)
	}
	return table(w, style, columns, rows)
}

// addOwners marks the leases of those who have a device as a whole, and adds a row for each
// who has none.
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
			l := &figures.LeaseState{PID: h.PID, User: h.User, Device: d.Index, State: "-",
				Budget: accounting.Max, AgeSeconds: h.AgeMs / 1000, JobName: h.JobName, Command: h.Command}
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
