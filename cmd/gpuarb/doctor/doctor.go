package doctor

// This file owns the types of the package. examine.go makes the checks in order.

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/procfacts"
	"github.com/gpuarb/gpuarb/internal/report"
)

// Verdict is the result of a check.
type Verdict string

// The verdicts.
const (
	Fine    Verdict = "ok"
	Note    Verdict = "note"    // worth knowing, but nothing is broken
	Wrong   Verdict = "wrong"   // gpuarb does not do what it should until this is repaired
	Unknown Verdict = "unknown" // cannot be found out from here
)

// Finding is the outcome of one check.
type Finding struct {
	Check   string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	Text    string  `json:"text"`
	Advice  *string `json:"advice"` // what to do about it; nil: nothing
}

// probeResult is the answer of the probe about one interface.
type probeResult struct {
	outcome string // absent, caught, not caught or broken; "": no answer, and detail says why
	path    string // path of the library of the interface
	devices int
	detail  string
	stderr  string
}

// Doctor examines the machine. It reads files only below Root, so that a test can give it a machine
// of its own. Programs always run on the real machine.
type Doctor struct {
	Root       string
	Timeout    time.Duration // time limit of each check that may hang
	Executable string        // absolute path of gpuarb
	Environ    []string
	Getenv     func(string) string
	// Ask asks the daemon for its state, and returns the socket that accepted the connection; "":
	// none did.
	Ask func(context.Context) (state figures.Snapshot, socket string, err error)
	// Slow tells the user what the command waits for, until done is called.
	Slow func(what string) (done func())

	findings []Finding
	socket   string            // socket of the daemon; "": it has not answered
	state    *figures.Snapshot // state of the daemon; nil: it has not answered
	nvml     probeResult       // filled by checkShim
}

func (d *Doctor) add(check string, v Verdict, advice, format string, args ...any) {
	d.findings = append(d.findings, Finding{check, v, fmt.Sprintf(format, args...), report.Unless(advice, "")})
}

// path returns the path of a file of the examined machine.
func (d *Doctor) path(name string) string { return filepath.Join(d.Root, name) }

func (d *Doctor) processes() procfacts.Root { return procfacts.Root(d.path("/proc")) }
