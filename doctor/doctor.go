package doctor

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/gpuarb/gpuarb/figures"
	"github.com/gpuarb/gpuarb/procfacts"
	"github.com/gpuarb/gpuarb/report"
)

// Verdict is what a check came to.
type Verdict string

// The verdicts.
const (
	Fine    Verdict = "ok"
	Note    Verdict = "note"    // worth knowing; nothing is broken
	Wrong   Verdict = "wrong"   // gpuarb does not do what it should until this is mended
	Unknown Verdict = "unknown" // cannot be told from here
)

// Finding is the outcome of one check.
type Finding struct {
	Check   string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	Text    string  `json:"text"`
	Advice  *string `json:"advice"` // what to do about it; nil: nothing
}

// probed is what the probe says of one interface.
type probed struct {
	outcome string // absent, caught, not caught, broken; "": it gave no answer, and detail says why
	path    string // of the interface's library
	devices int
	detail  string
	stderr  string
}

// Doctor looks at the machine. What it reads lies below Root, so that a test can give
// it a machine of its own; programs are always run on the real one.
type Doctor struct {
	Root       string
	Patience   time.Duration // with each thing that may hang
	Executable string        // absolute path of gpuarb
	Environ    []string
	Getenv     func(string) string
	// Ask is how the daemon is asked for its state, and says at which socket it took the connection; "": at none.
	Ask func(context.Context) (state figures.Snapshot, socket string, err error)
	// Slow says what is being waited for, until done is called.
	Slow func(what string) (done func())

	findings []Finding
	socket   string            // of the daemon, once it has answered
	state    *figures.Snapshot // once the daemon has answered
	nvml     probed            // once that has been looked at
}

func (d *Doctor) found(check string, v Verdict, advice, format string, args ...any) {
	d.findings = append(d.findings, Finding{check, v, fmt.Sprintf(format, args...), report.Unless(advice, "")})
}

// path is a path of the machine that is looked at.
func (d *Doctor) path(name string) string { return filepath.Join(d.Root, name) }

func (d *Doctor) processes() procfacts.Root { return procfacts.Root(d.path("/proc")) }
