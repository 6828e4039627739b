package main

// This file asks the daemon about the job while the program of `gpuarb run` runs, and prints what the
// user should know: a process uses a device outside the budget (bypassing.go), or the daemon has
// warned of the job because it is idle or old (idle.warn and age.warn of its rule). run.go calls it.

import (
	"context"
	"errors"
	"time"

	"github.com/gpuarb/gpuarb/arbiter/wording"
	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/gpuarb/gpuarb/ipc"
)

// The daemon reads its devices once a second. The pause between two questions to the daemon doubles
// from watchPauseMin to watchPauseMax.
const (
	watchPauseMin = time.Second
	watchPauseMax = 10 * time.Second
)

// watch is a job that is watched, and the lines that were printed about it.
type watch struct {
	*app
	who  string
	job  ipc.Token
	told ipc.WarningsReply

	// Questions that need not be asked any more: the line was printed, or the daemon is of an older version.
	noBeside, noWarnings bool
}

// watchJob prints lines about a job as soon as the daemon knows something. Call stop to end the
// watch; nothing is printed after stop returns.
func (a *app) watchJob(path, who string, job ipc.Token) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	w := &watch{app: a, who: who, job: job}
	go func() {
		defer close(ended)
		for pause := watchPauseMin; !a.quiet(); pause = min(2*pause, watchPauseMax) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			if w.ask(ctx, path); w.noBeside && w.noWarnings {
				return
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// ask asks the daemon once, and prints what is new.
func (w *watch) ask(ctx context.Context, path string) {
	ctx, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	client, err := ipc.DialAny(ctx, []string{path})
	if err != nil {
		return
	}
	defer client.Close()
	if !w.noBeside {
		reply, err := client.Beside(ctx, w.job)
		if err == nil && reply.Count > 0 {
			w.say("%s: %s", w.who, bypassing(&reply))
		}
		w.noBeside = reply.Count > 0 || errors.Is(err, ipc.StatusUnknownType)
	}
	if !w.noWarnings {
		reply, err := client.Warnings(ctx, w.job)
		if err == nil {
			w.warned(reply)
		}
		w.noWarnings = errors.Is(err, ipc.StatusUnknownType)
	}
}

// warned prints the warnings that are new. The counts begin at 0 again if the daemon is restarted.
func (w *watch) warned(reply ipc.WarningsReply) {
	if reply.Idle != 0 && reply.Idle != w.told.Idle {
		w.say("%s: %s%s", w.who, report.Escape(reply.IdleText.String()), wording.EndIt)
	}
	if reply.Aged != 0 && reply.Aged != w.told.Aged {
		w.say("%s: %s%s", w.who, report.Escape(reply.AgedText.String()), wording.EndIt)
	}
	w.told = reply
}
