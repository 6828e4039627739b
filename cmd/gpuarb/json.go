package main

import (
	"encoding/json"

	"github.com/gpuarb/gpuarb/preload"
)

// What the commands print with --json that are not about the daemon's state; the others are
// types of package report, and the convention is the same: null for none. docs/json.md has
// each key.

// printJSON prints a value, indented, with a newline at the end.
func (a *app) printJSON(v any) error {
	encoder := json.NewEncoder(a.stdout)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// orNull is null where there is no text.
type orNull string

// MarshalJSON writes the text, or null for none.
func (o orNull) MarshalJSON() ([]byte, error) {
	if o == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(o))
}

// statusRow is what `gpuarb status --json` prints of a target.
type statusRow struct {
	Kind    string `json:"kind"`
	Name    orNull `json:"name"`
	Library string `json:"library"`
	Memory  orNull `json:"memory"`
	File    string `json:"file"`
	Running *int   `json:"processes"`
	Held    *int   `json:"processes_held"`
}

func statusRows(entries []preload.Entry) []statusRow {
	rows := make([]statusRow, 0, len(entries))
	for _, e := range entries {
		row := statusRow{Kind: string(e.Kind), Name: orNull(e.Name), Library: e.Library, Memory: orNull(e.Memory), File: e.File}
		if e.Known {
			row.Running, row.Held = &e.Running, &e.Held
		}
		rows = append(rows, row)
	}
	return rows
}
