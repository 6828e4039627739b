package main

// This file opens a job and waits until it is served. run.go calls it directly, claim.go by way of
// a keeper. While the job waits, waitlines.go prints lines, and a signal ends the wait.

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/gpuarb/gpuarb/cmd/gpuarb/spawn"
	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/gpuarb/gpuarb/ipc"
	"golang.org/x/sys/unix"
)

// endsWait reports whether a signal ends the wait for a job. The other signals are for the program,
// which has not started. A signal that was ignored when gpuarb was started ends no wait. nohup
// ignores signals, and so does a script that starts gpuarb in the background.
func endsWait(sig os.Signal) bool {
	switch sig {
	case unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT:
		return !spawn.Ignored(sig.(syscall.Signal))
	case unix.SIGKILL: // --die-with-parent sends it deathGrace after SIGTERM
		return true
	}
	return false
}

// openJob opens a job and waits until it holds what it asks for. A signal ends the wait.
func (a *app) openJob(path, who string, request ipc.JobOpenRequest, caught <-chan os.Signal) (ipc.JobOpenReply, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	lines := newWaitReporter(a, who)
	defer lines.stop()
	silent := time.AfterFunc(daemonTimeout, cancel) // until the first notice: a daemon that says nothing is stuck
	defer silent.Stop()
	var job ipc.JobOpenReply
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		job, err = ipc.OpenJob(ctx, path, request, func(n ipc.WaitingReply) {
			silent.Stop()
			lines.notice(n)
		})
	}()
	sig := untilDone(caught, done)
	if sig != nil {
		cancel()
		<-done
		lines.givenUp(sig)
		return job, &exitError{code: exitRunSignal + int(sig.(syscall.Signal))}
	}
	if err != nil {
		return job, a.explainJob(path, lines.latest(), err)
	}
	lines.served(job)
	return job, nil
}

// untilDone waits until done is closed or a signal ends the wait, and returns that signal or nil.
// Other signals are dropped, because they were for the program, which has not started.
func untilDone(caught <-chan os.Signal, done <-chan struct{}) os.Signal {
	for {
		select {
		case sig := <-caught:
			if endsWait(sig) {
				return sig
			}
		case <-done:
			if len(caught) == 0 {
				return nil
			}
		}
	}
}

// explainJob returns an error that says why a job was not opened, with its exit code.
func (a *app) explainJob(path, said string, err error) error {
	code, text := exitFailed, ""
	switch {
	case errors.Is(err, ipc.StatusTimeout):
		code, text = exitTimeout, "waited too long: "+said
	case errors.Is(err, ipc.StatusBusy):
		code, text = exitBusy, "busy: it would have to wait; `gpuarb queue` and `gpuarb ps` show for what"
	case errors.Is(err, ipc.StatusNoDevice):
		code, text = exitUnavailable, errNoDevice.Error()
	case errors.Is(err, ipc.StatusCancelled): // the exit code of a request that may not wait
		code, text = exitBusy, "its request was cancelled (`gpuarb queue cancel`): start it again if it is still wanted"
	}
	var reply *ipc.ReplyError
	switch gone := errors.Is(err, ipc.ErrNoDaemon) && !errors.Is(err, context.Canceled); {
	case gone && code == exitTimeout:
		return fail(code, "waited too long: %w", explainNoDaemon(err))
	case gone:
		return &exitError{exitUnavailable, explainNoDaemon(err)}
	case !errors.As(err, &reply):
		return &exitError{exitUnavailable, explainCall(path, err)}
	case reply.Text != "":
		return fail(code, "%s", report.Escape(reply.Text))
	case text != "":
		return fail(code, "%s", text)
	}
	return &exitError{code, explainCall(path, err)}
}

// cancelTimeout bounds how long a signal is held back while the tickets of its job are cancelled.
const cancelTimeout = 2 * time.Second

// cancelTickets cancels the waiting requests of the processes of a job, so that a waiting thread
// can handle the signal. Without a daemon no request waits.
func (a *app) cancelTickets(path string, job ipc.Token) {
	_ = withDaemon([]string{path}, cancelTimeout, func(ctx context.Context, client *ipc.Client) error {
		_, err := client.Cancel(ctx, ipc.CancelRequest{Job: job})
		return err
	})
}
