package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/wording"
	"github.com/gpuarb/gpuarb/figures"
	"github.com/gpuarb/gpuarb/ipc"
)

// This file tells the user of `gpuarb run` that processes of the job use a device past the library: once while the program
// runs, and again at the job's end. The daemon finds these processes.

// The pauses between two questions to the daemon, which reads its devices once a second: they double from the shortest to the longest.
const (
	besideSoonest = time.Second
	besideLatest  = 10 * time.Second
)

// besidePatience bounds how long one such question may take.
const besidePatience = 2 * time.Second

// watchBeside says once that a process of a job uses a device past the library, as soon as the daemon has seen it. stop ends the
// watch; nothing is said after it returns.
func (a *app) watchBeside(path, who string, job ipc.Token) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for pause := besideSoonest; !a.quiet(); pause = min(2*pause, besideLatest) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			beside, err := besideOf(ctx, path, job)
			if errors.Is(err, ipc.StatusUnknownType) {
				return // an older daemon, which does not know the question
			}
			if beside.Count > 0 {
				more := ""
				if n := int(beside.Count+beside.More) - 1; n > 0 {
					more = fmt.Sprintf("; so do %d more", n)
				}
				p := &beside.Process[0]
				a.say("%s: %s runs %s and uses %s outside the budget, on GPU %d%s: no limit holds for it", who,
					programOf(p), bypassOf(p).Without(), accounting.Bytes(p.Peak).Human(), p.Device, more)
				return
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// sayBeside says at the end of a job which of its processes used a device past the library.
func (a *app) sayBeside(path, who string, job ipc.Token) {
	ctx, cancel := context.WithTimeout(context.Background(), besidePatience)
	defer cancel()
	beside, err := besideOf(ctx, path, job)
	if err != nil {
		return // the summary says that the daemon does not answer
	}
	for i := range beside.Process[:beside.Count] {
		p := &beside.Process[i]
		a.say("%s: %s ran %s and used %s outside the budget, on GPU %d", who,
			programOf(p), bypassOf(p).Without(), accounting.Bytes(p.Peak).Human(), p.Device)
	}
	if beside.More > 0 {
		a.say("%s: %d more processes ran without the library and used a device outside the budget", who, beside.More)
	}
}

func programOf(p *ipc.BesideProcess) string { return wording.Stranger(p.Program.String(), int(p.PID)) }

func bypassOf(p *ipc.BesideProcess) figures.Bypass { return figures.Bypass(p.Bypass.String()) }

// besideOf asks the daemon which processes of a job used a device past the library.
func besideOf(ctx context.Context, path string, job ipc.Token) (beside ipc.BesideReply, err error) {
	ctx, cancel := context.WithTimeout(ctx, besidePatience)
	defer cancel()
	client, err := ipc.DialAny(ctx, []string{path})
	if err != nil {
		return beside, err
	}
	defer client.Close()
	return client.Beside(ctx, job)
}
