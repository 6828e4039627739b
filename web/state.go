package web

// This file writes a state as the JSON that /state and /events send. Package report writes the
// parts.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/report"
)

// stateJSON returns a snapshot as a JSON object in one line. Its arrays are those that the commands
// print with --json.
func stateJSON(s figures.Snapshot) ([]byte, error) {
	version, err := json.Marshal(s.Version)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"time_ms":%d,"version":%s`, s.TimeUnixNano/int64(time.Millisecond), version)
	for _, part := range []struct {
		key   string
		write func(io.Writer, figures.Snapshot) error
	}{{"devices", report.DevicesJSON}, {"leases", report.LeasesJSON}, {"queue", report.QueueJSON}, {"others", othersJSON}} {
		fmt.Fprintf(&b, `,%q:`, part.key)
		if err := part.write(&b, s); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	var line bytes.Buffer
	if err := json.Compact(&line, b.Bytes()); err != nil {
		return nil, err
	}
	return line.Bytes(), nil
}

// othersJSON writes who has something of a device without a lease there: programs without gpuarb,
// jobs with only a reservation or a claim, and jobs that gave all of their memory back. Rows of leases would make the state of many leases twice
// as long.
func othersJSON(w io.Writer, s figures.Snapshot) error {
	rows := slices.DeleteFunc(report.Holders(s), func(h report.Holder) bool {
		return h.Device == nil || len(h.Holds) == 0 && h.Suspended == 0 || slices.Contains(h.Holds, "lease")
	})
	return json.NewEncoder(w).Encode(rows)
}

// downJSON returns the JSON that says why the daemon does not answer.
func downJSON(why error) []byte {
	text, _ := json.Marshal(struct { // one string, so it cannot fail
		Error string `json:"error"`
	}{why.Error()})
	return text
}
