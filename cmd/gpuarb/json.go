package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/gpuarb/gpuarb/cmd/gpuarb/preload"
	"github.com/gpuarb/gpuarb/internal/report"
)

// This file prints results on stdout, as JSON or as text. It also has the JSON types that no other
// file of this package has. Package report has those for the state of the daemon.
// docs/reference/json.md describes each key; null means none.

// show prints the result of a command: as JSON with --json, otherwise as text.
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

// printf prints on stdout what a command has done, or a result of one line.
func (a *app) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(os.Stdout, format, args...)
	return err
}

// statusRow is an entry of the output of `gpuarb status --json`.
type statusRow struct {
	Kind    string  `json:"kind"`
	Name    *string `json:"name"`
	Library string  `json:"library"`
	Memory  *string `json:"memory"`
	File    string  `json:"file"`
	Running *int    `json:"processes"`
	Loaded  *int    `json:"processes_held"`
}

func statusRows(entries []preload.Entry) []statusRow {
	rows := make([]statusRow, 0, len(entries))
	for _, e := range entries {
		row := statusRow{Kind: string(e.Kind), Name: report.Unless(e.Name, ""), Library: e.Library, Memory: report.Unless(e.Memory, ""), File: e.File}
		if e.Known {
			row.Running, row.Loaded = &e.Running, &e.Loaded
		}
		rows = append(rows, row)
	}
	return rows
}
