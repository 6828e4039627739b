package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/report"
	"github.com/gpuarb/gpuarb/spawn"
	"golang.org/x/sys/unix"
)

// waitLines tells on stderr how a request stands that waits: one line when something
// has changed, and one when it was served.
type waitLines struct {
	*app
	who   string // whom it is about; "": a shell's claim
	said  string // the latest line
	since time.Time
}

// told takes a notice.
func (w *waitLines) told(n ipc.WaitingReply) {
	if w.said == "" {
		w.since = time.Now().Add(-time.Duration(n.Waited) * time.Millisecond)
	}
	line := report.Escape(n.Text.String()) // what, position, who holds it and since when
	if line == "" {
		line = fmt.Sprintf("waits, position %d", n.Position)
	}
	if line != w.said {
		w.sayAbout("%s", line)
	}
	w.said = line
}

// served tells the end of the wait, if there was one.
func (w *waitLines) served(job ipc.JobOpenReply) {
	if w.said == "" {
		return
	}
	waited := max(time.Since(w.since), 0).Round(time.Second)
	if job.Devices == 0 {
		w.sayAbout("served after %v", waited)
		return
	}
	w.sayAbout("served after %v: %s", waited, devicesOf(job))
}

// sayAbout prints a line on stderr that tells whom it is about.
func (w *waitLines) sayAbout(format string, args ...any) {
	if w.who != "" {
		format, args = "%s: "+format, append([]any{report.Escape(w.who)}, args...)
	}
	w.say(format, args...)
}

// devicesOf names a job's devices, as GPU 0,2.
func devicesOf(job ipc.JobOpenReply) string {
	if job.Devices == 1 && job.Device[0].Vendor == ipc.VendorCPU {
		return accounting.DeviceName(int(job.Device[0].Index), true)
	}
	return "GPU " + indices(job)
}

// indices are those of a job's devices, as 0,2.
func indices(job ipc.JobOpenReply) string {
	var list []string
	for _, d := range job.Device[:job.Devices] {
		list = append(list, fmt.Sprint(d.Index))
	}
	return strings.Join(list, ",")
}

// endsWait tells the signals that end a wait for a job from those that mean the
// program, which is not there yet. A signal that was ignored when gpuarb was started (under nohup, in the background
// of a script) ends none.
func endsWait(sig os.Signal) bool {
	switch sig {
	case unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT:
		return !spawn.Ignored(sig.(syscall.Signal))
	case unix.SIGKILL: // --die-with-parent sends it deathGrace after SIGTERM
		return true
	}
	return false
}

// openJob opens a job, and waits for what it is to hold. A signal gives it up.
func (a *app) openJob(path, who string, request ipc.JobOpenRequest, caught <-chan os.Signal) (ipc.JobOpenReply, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	lines := &waitLines{app: a, who: who}
	silent := time.AfterFunc(patience, cancel) // a daemon that says nothing at all
	defer silent.Stop()
	var job ipc.JobOpenReply
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		job, err = ipc.OpenJob(ctx, path, request, func(n ipc.WaitingReply) {
			silent.Stop()
			lines.told(n)
		})
	}()
	sig := untilDone(caught, done)
	if sig != nil {
		cancel()
		<-done
		if lines.said != "" {
			lines.sayAbout("%v: the place in the queue is given up", sig)
		}
		return job, &exitError{code: exitRunSignal + int(sig.(syscall.Signal))}
	}
	if err != nil {
		return job, a.explainJob(path, lines.said, err)
	}
	lines.served(job)
	return job, nil
}

// untilDone waits, and returns the signal that ends the wait before it is done, or nil.
// What else has been caught until then is dropped: it meant a program that was not there.
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

// explainJob says why a job was not opened, and gives it the exit code for that.
func (a *app) explainJob(path, said string, err error) error {
	code, text := exitFailed, ""
	switch {
	case errors.Is(err, ipc.StatusTimeout):
		code, text = exitTimeout, "waited too long: "+said
	case errors.Is(err, ipc.StatusBusy):
		code, text = exitBusy, "busy: it would have to wait; `gpuarb queue` and `gpuarb ps` show for what"
	case errors.Is(err, ipc.StatusNoDevice):
		code, text = exitUnavailable, errNoDevice.Error()
	case errors.Is(err, ipc.StatusCancelled): // as without waiting
		code, text = exitBusy, "somebody cancelled its ticket"
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

// cancelPatience bounds how long a signal is held up for the tickets of its job to be cancelled.
const cancelPatience = 2 * time.Second

// cancelTickets takes the waiting requests of a job's processes out of the queue, so
// that a thread that waits gets to see the signal. Without a daemon nothing waits.
func (a *app) cancelTickets(path string, job ipc.Token) {
	_ = withDaemon([]string{path}, cancelPatience, func(ctx context.Context, client *ipc.Client) error {
		_, err := client.Cancel(ctx, ipc.CancelRequest{Job: job})
		return err
	})
}
