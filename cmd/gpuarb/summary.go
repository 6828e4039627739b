package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/report"
)

// summaryPatience bounds how long a run that has ended waits for its figures.
const summaryPatience = 2 * time.Second

// summaryWish is whether a run ends with a line of what became of it.
type summaryWish int

const (
	summaryIfNeeded summaryWish = iota // where something of it waited or was refused
	summaryAlways
	summaryNever
)

// summarize says what became of a job whose command has ended.
func (a *app) summarize(path, who string, job ipc.Token, wish summaryWish) {
	if wish == summaryNever || wish == summaryIfNeeded && a.quiet() {
		return
	}
	a.sayBeside(path, who, job)
	tally, err := tallyOf([]string{path}, job, summaryPatience)
	switch {
	case err == nil && (wish == summaryAlways || tally.Waits > 0 || tally.Refused > 0):
		a.say("%s: %s", who, summary(tally))
	case err == nil || wish != summaryAlways:
	case errors.Is(err, ipc.StatusUnknownType):
		a.say("%s: no summary: the daemon at %s is of an older version, which keeps none", who, path)
	case errors.Is(err, ipc.StatusNoSession):
		a.say("%s: no summary: the daemon at %s does not know the job any more", who, path)
	default:
		a.say("%s: no summary: the daemon at %s does not answer", who, path)
	}
}

func tallyOf(paths []string, job ipc.Token, most time.Duration) (tally ipc.JobTallyReply, err error) {
	err = withDaemon(paths, most, func(ctx context.Context, client *ipc.Client) (err error) {
		tally, err = client.Tally(ctx, job)
		return err
	})
	return tally, err
}

// summary is the line: what was used at most, of how much, how long requests waited, and how
// many were refused.
func summary(t ipc.JobTallyReply) string {
	var used []string
	for _, d := range t.Device[:min(t.Devices, ipc.PageSlots)] {
		of := ""
		if d.Max != ipc.NoLimit {
			of = " of " + accounting.Bytes(d.Max).Human()
		}
		used = append(used, fmt.Sprintf("%s%s on %s", accounting.Bytes(d.Peak).Human(), of, accounting.DeviceName(int(d.Index), d.Vendor == ipc.VendorCPU)))
	}
	line := "asked for no GPU memory"
	if used != nil {
		line = "used at most " + strings.Join(used, ", ")
	}
	if t.Waits > 0 {
		waited := time.Duration(t.Waited) * time.Millisecond
		line += fmt.Sprintf("; %s waited %v", report.Count(int(t.Waits), "request"), waited.Round(precision(waited)))
		if t.Waits > 1 {
			line += " in all"
		}
	}
	if t.Refused > 0 {
		line += "; " + report.Count(int(t.Refused), "request") + " refused"
	}
	if t.Since > 0 {
		ago := time.Duration(t.Since) * time.Millisecond
		line += fmt.Sprintf(" (counted since the daemon was restarted %v ago)", ago.Round(precision(ago)))
	}
	return line
}

// precision is what a duration is rounded to for people.
func precision(d time.Duration) time.Duration {
	if d < time.Second {
		return time.Millisecond
	}
	return time.Second
}
