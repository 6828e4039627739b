package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/gpuarb/gpuarb/preload"
	"github.com/gpuarb/gpuarb/report"
)

// What the commands print with --json that are not about the daemon's state; the others are
// types of package report, and the convention is the same: null for none. docs/reference/json.md has
// each key.

// show prints what a command found: as JSON with --json, else as text.
func (a *app) show(found any, text func(w io.Writer) error) error {
	var b bytes.Buffer
	if a.json {
		encoder := json.NewEncoder(&b)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		text = func(io.Writer) error { return encoder.Encode(found) }
	}
	if err := text(&b); err != nil {
		return err
	}
	_, err := b.WriteTo(os.Stdout)
	return err
}

// tell prints what a command has done, or has found where there is no more to it than a line.
func (a *app) tell(format string, args ...any) error {
	_, err := fmt.Fprintf(os.Stdout, format, args...)
	return err
}

// statusRow is what `gpuarb status --json` prints of a target.
type statusRow struct {
	Kind    string  `json:"kind"`
	Name    *string `json:"name"`
	Library string  `json:"library"`
	Memory  *string `json:"memory"`
	File    string  `json:"file"`
	Running *int    `json:"processes"`
	Held    *int    `json:"processes_held"`
}

func statusRows(entries []preload.Entry) []statusRow {
	rows := make([]statusRow, 0, len(entries))
	for _, e := range entries {
		row := statusRow{Kind: string(e.Kind), Name: report.Unless(e.Name, ""), Library: e.Library, Memory: report.Unless(e.Memory, ""), File: e.File}
		if e.Known {
			row.Running, row.Held = &e.Running, &e.Held
		}
		rows = append(rows, row)
	}
	return rows
}
