package report

import (
	"bufio"
	"encoding/json"
	"io"
	"strconv"

	"github.com/gpuarb/gpuarb/accounting"
)

// leaseColumns are the columns of the table of leases. Their names and order are
// an interface.
var leaseColumns = []column[accounting.LeaseState]{
	{"PID", right, func(l accounting.LeaseState) string { return strconv.Itoa(l.PID) }},
	{"USER", left, func(l accounting.LeaseState) string { return word(l.User) }},
	{"GPU", right, func(l accounting.LeaseState) string { return strconv.Itoa(l.Device) }},
	{"STATE", left, func(l accounting.LeaseState) string { return word(string(l.State)) }},
	{"USED", right, func(l accounting.LeaseState) string { return Value(l.Used) }},
	{"BUDGET", right, func(l accounting.LeaseState) string { return Value(l.Budget) }},
	{"MIN", right, func(l accounting.LeaseState) string { return Value(l.Min) }},
	{"PEAK", right, func(l accounting.LeaseState) string { return Value(l.Peak) }},
	{"OVERHEAD", right, func(l accounting.LeaseState) string { return Value(l.Overhead) }},
	{"STREAMS", right, func(l accounting.LeaseState) string { return strconv.Itoa(l.Streams) }},
	{"SLOT", right, func(l accounting.LeaseState) string { return slot(l.Slot) }},
	{"AGE", right, func(l accounting.LeaseState) string { return strconv.FormatInt(l.AgeSeconds, 10) }},
	{"COMMAND", last, func(l accounting.LeaseState) string { return line(l.Command) }},
}

func slot(held bool) string {
	if held {
		return "1"
	}
	return "-"
}

// Leases writes the table of leases: a header, and a line per lease in the
// snapshot's order. Memory is in bytes, AGE in seconds, SLOT the number of slots held.
func Leases(w io.Writer, s accounting.Snapshot) error {
	return table(w, leaseColumns, s.Leases)
}

// jsonLease is a lease with null where it has no budget: the number that stands for
// "no limit" has more digits than many readers of JSON keep.
type jsonLease struct {
	accounting.LeaseState
	Budget *accounting.Bytes `json:"budget_bytes"`
}

// LeasesJSON writes the leases as one JSON array, an object per line. The fields
// are those of accounting.LeaseState; budget_bytes is null where there is no limit.
func LeasesJSON(w io.Writer, s accounting.Snapshot) error {
	rows := make([]jsonLease, 0, len(s.Leases))
	for _, l := range s.Leases {
		row := jsonLease{LeaseState: l}
		if l.Budget != accounting.Max {
			row.Budget = &l.Budget
		}
		rows = append(rows, row)
	}
	return jsonLines(w, rows)
}

// jsonLines writes one JSON array with a line for each row.
func jsonLines[T any](w io.Writer, rows []T) error {
	out := bufio.NewWriter(w)
	out.WriteString("[")
	separator := "\n"
	for _, row := range rows {
		data, err := json.Marshal(row)
		if err != nil {
			return err
		}
		out.WriteString(separator)
		out.Write(data)
		separator = ",\n"
	}
	if len(rows) > 0 {
		out.WriteString("\n")
	}
	out.WriteString("]\n")
	return out.Flush()
}
