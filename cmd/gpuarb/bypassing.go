package main

import (
	"context"
	"fmt"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/wording"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/ipc"
)

// This file has the lines of `gpuarb run` about processes of the job that use a device without the
// library, and so outside the budget. watchjob.go prints one while the program runs; run.go prints
// all at the end of the job. The daemon finds these processes.

// watchTimeout bounds how long a question to the daemon about a job may take.
const watchTimeout = 2 * time.Second

// bypassing returns the line about processes that use a device without the library.
func bypassing(r *ipc.BesideReply) string {
	more := ""
	if n := int(r.Count+r.More) - 1; n > 0 {
		more = fmt.Sprintf("; more such processes: %d", n)
	}
	p := &r.Process[0]
	return fmt.Sprintf("%s runs %s and uses %s outside the budget, on GPU %d%s: no limit holds for it",
		programOf(p), bypassOf(p).Without(), accounting.Bytes(p.Peak).Human(), p.Device, more)
}

// sayBypassing says at the end of a job which of its processes used a device without the library.
func (a *app) sayBypassing(path, who string, job ipc.Token) {
	var bypassing ipc.BesideReply
	err := withDaemon([]string{path}, watchTimeout, func(ctx context.Context, client *ipc.Client) (err error) {
		bypassing, err = client.Beside(ctx, job)
		return err
	})
	if err != nil {
		return // the summary says that the daemon does not answer
	}
	for i := range bypassing.Process[:bypassing.Count] {
		p := &bypassing.Process[i]
		a.say("%s: %s ran %s and used %s outside the budget, on GPU %d", who,
			programOf(p), bypassOf(p).Without(), accounting.Bytes(p.Peak).Human(), p.Device)
	}
	if bypassing.More > 0 {
		a.say("%s: %d more processes ran without the library and used a device outside the budget", who, bypassing.More)
	}
}

func programOf(p *ipc.BesideProcess) string { return wording.Stranger(p.Program.String(), int(p.PID)) }

func bypassOf(p *ipc.BesideProcess) figures.Bypass { return figures.Bypass(p.Bypass.String()) }
