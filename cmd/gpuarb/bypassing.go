package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/wording"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/ipc"
)

// This file tells the user of `gpuarb run` that processes of the job use a device without the
// library, and so outside the budget. It says so once while the program runs, and again at the end
// of the job. The daemon finds these processes. run.go calls this file.

// The daemon reads its devices once a second. The pause between two questions to the daemon doubles
// from bypassPauseMin to bypassPauseMax.
const (
	bypassPauseMin = time.Second
	bypassPauseMax = 10 * time.Second
)

// bypassTimeout bounds how long a question to the daemon may take.
const bypassTimeout = 2 * time.Second

// watchBypassing says once that a process of a job uses a device without the library, as soon as
// the daemon has seen such a process. Call stop to end the watch; nothing is said after stop
// returns.
func (a *app) watchBypassing(path, who string, job ipc.Token) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for pause := bypassPauseMin; !a.quiet(); pause = min(2*pause, bypassPauseMax) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			bypassing, err := askBypassing(ctx, path, job)
			if errors.Is(err, ipc.StatusUnknownType) {
				return // an older daemon, which does not know the question
			}
			if bypassing.Count > 0 {
				more := ""
				if n := int(bypassing.Count+bypassing.More) - 1; n > 0 {
					more = fmt.Sprintf("; so do %d more", n)
				}
				p := &bypassing.Process[0]
				a.say("%s: %s runs %s and uses %s outside the budget, on GPU %d%s: no limit holds for it", who,
					programOf(p), bypassOf(p).Without(), accounting.Bytes(p.Peak).Human(), p.Device, more)
				return
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// sayBypassing says at the end of a job which of its processes used a device without the library.
func (a *app) sayBypassing(path, who string, job ipc.Token) {
	ctx, cancel := context.WithTimeout(context.Background(), bypassTimeout)
	defer cancel()
	bypassing, err := askBypassing(ctx, path, job)
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

// askBypassing asks the daemon which processes of a job used a device without the library.
func askBypassing(ctx context.Context, path string, job ipc.Token) (bypassing ipc.BesideReply, err error) {
	ctx, cancel := context.WithTimeout(ctx, bypassTimeout)
	defer cancel()
	client, err := ipc.DialAny(ctx, []string{path})
	if err != nil {
		return bypassing, err
	}
	defer client.Close()
	return client.Beside(ctx, job)
}
