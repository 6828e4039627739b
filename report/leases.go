package report

import (
	"encoding/json"
	"io"

	"github.com/gpuarb/gpuarb/accounting"
)

// Leases writes the table of leases: a header and a line per lease.
func Leases(w io.Writer, s accounting.Snapshot) error {
	_, err := io.WriteString(w, "PID USER GPU STATE USED BUDGET MIN PEAK OVERHEAD STREAMS SLOT AGE COMMAND\n")
	return err
}

// LeasesJSON writes the leases as one JSON array, indented, with a newline at the end.
func LeasesJSON(w io.Writer, s accounting.Snapshot) error {
	enc := json.NewEncoder(w)
	return enc.Encode(s.Leases)
}

// Stats writes the counters, one "key value" per line.
func Stats(w io.Writer, s accounting.Snapshot) error { return nil }

// Devices writes the table of devices for people: sizes are rounded.
func Devices(w io.Writer, s accounting.Snapshot) error { return nil }

// Value spells an amount as a file shows it: bytes in decimal, or "max".
func Value(b accounting.Bytes) string { return "" }

// Size spells an amount for a message: "4.0 GiB", "512 B", "max".
func Size(b accounting.Bytes) string { return "" }

// Escape makes s fit for the last column of a table or the rest of a line.
func Escape(s string) string { return s }
