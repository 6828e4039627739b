package main

// This file prints the last line of `gpuarb run`: how much the job used, and how long it waited.
// run.go calls it.

import (
	"context"
	"errors"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/wording"
	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/gpuarb/gpuarb/ipc"
)

// summaryTimeout bounds how long a run that has ended waits for the figures of its job.
const summaryTimeout = 2 * time.Second

// summaryMode is whether a run ends with a summary line.
type summaryMode int

const (
	summaryIfNeeded summaryMode = iota // print it if a request waited or was refused
	summaryAlways
	summaryNever
)

// reportTime is how long a run that has ended waits until the daemon knows its exit code.
const reportTime = 500 * time.Millisecond

// reportExit tells the daemon how the command of a job has ended, for the history. err is the error of supervise. Without a daemon nothing is
// told.
func reportExit(path string, job ipc.Token, err error) {
	request := ipc.ExitedRequest{Job: job}
	var killed *killedError
	var exit *exitError
	switch {
	case errors.As(err, &killed):
		request.Signal = uint32(killed.signal)
	case errors.As(err, &exit) && exit.err == nil:
		request.Code = uint32(exit.code)
	case err != nil:
		return // the program could not be started
	}
	_ = withDaemon([]string{path}, reportTime, func(ctx context.Context, client *ipc.Client) error { return client.Exited(ctx, request) })
}

// summarize prints the summary of a job whose command has ended.
func (a *app) summarize(path, who string, job ipc.Token, wish summaryMode) {
	if wish == summaryNever || wish == summaryIfNeeded && a.quiet() {
		return
	}
	a.sayBypassing(path, who, job)
	tally, err := tallyOf([]string{path}, job, summaryTimeout)
	switch {
	case err == nil && (wish == summaryAlways || tally.Waits > 0 || tally.Refused > 0 || tally.Unknown > 0):
		a.say("%s: %s", who, accountOf(path, job, tally))
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

// accountOf returns the line of a job in the words of the daemon. An older daemon has only the numbers.
func accountOf(path string, job ipc.Token, tally ipc.JobTallyReply) (line string) {
	err := withDaemon([]string{path}, summaryTimeout, func(ctx context.Context, client *ipc.Client) (err error) {
		line, err = client.Account(ctx, job)
		return err
	})
	if err != nil {
		return summary(tally)
	}
	return report.Escape(line)
}

// summary returns the line for the numbers of an older daemon: the largest usage and its limit, the time that requests waited, and the
// number of refused requests.
func summary(t ipc.JobTallyReply) string {
	var used []wording.Use
	for _, d := range t.Device[:min(t.Devices, ipc.PageSlots)] {
		most := accounting.Max
		if d.Max != ipc.NoLimit {
			most = accounting.Bytes(d.Max)
		}
		used = append(used, wording.Use{Device: accounting.DeviceName(int(d.Index), d.Vendor == ipc.VendorCPU), Peak: accounting.Bytes(d.Peak), Max: most})
	}
	asked := wording.Requests{Waits: t.Waits, Waited: time.Duration(t.Waited) * time.Millisecond, Refused: t.Refused}
	return wording.Account(asked, used, int(t.Unknown), time.Duration(t.Since)*time.Millisecond)
}
