package main

// This file prints on stderr how the wait of a job goes. On a terminal there is a line for each
// change. Elsewhere, as in a log of CI, there are the first line, the last, and one a minute.
// openjob.go calls it.

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/wording"
	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/gpuarb/gpuarb/ipc"
)

// waitEvery is the time between two lines about a wait if stderr is not a terminal.
const waitEvery = time.Minute

// waitReporter prints the lines about one wait. Its methods may be called from several goroutines.
type waitReporter struct {
	*app
	who  string // name of the job in messages; "": the claim of a shell
	each bool   // print a line for each change

	mu    sync.Mutex
	said  string      // latest line, printed or not; "": nothing has waited yet
	since time.Time   // when the wait began
	timer *time.Timer // prints the next line; nil: there is a line for each change, or nothing waits
}

// newWaitReporter returns a reporter that has printed nothing. The caller must call stop.
func newWaitReporter(a *app, who string) *waitReporter {
	return &waitReporter{app: a, who: who, each: isTerminal(os.Stderr)}
}

// notice prints a notice of the daemon, if it is the first one, or if it differs from the latest line
// and there is a line for each change. That the daemon is gone is always printed.
func (w *waitReporter) notice(n ipc.WaitingReply) {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := w.said == ""
	if first {
		w.since = time.Now().Add(-time.Duration(n.Waited) * time.Millisecond)
	}
	line := report.Escape(n.Text.String()) // what is waited for, who holds it and since when
	if line == "" {
		line = fmt.Sprintf("waits, position %d", n.Position)
	}
	if first || line != w.said && (w.each || !isWait(line)) {
		w.sayAbout("%s", line)
	}
	w.said = line
	if first && !w.each {
		w.timer = time.AfterFunc(waitEvery, w.again)
	}
}

// again prints the latest line once more, with the time for which the job has waited.
func (w *waitReporter) again() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.sayAbout("%s", w.stillWaits(time.Now()))
		w.timer.Reset(waitEvery)
	}
}

// stillWaits returns the latest line with the time for which the job has waited.
func (w *waitReporter) stillWaits(now time.Time) string {
	span := wording.Span(now.Sub(w.since))
	if !isWait(w.said) {
		return fmt.Sprintf("%s (it has waited %s)", w.said, span)
	}
	return fmt.Sprintf("after %s it still %s", span, w.said)
}

// isWait reports whether a line says what is waited for in the queue, and not that the daemon is
// gone.
func isWait(line string) bool { return strings.HasPrefix(line, "waits") }

// stop ends the lines.
func (w *waitReporter) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
}

// latest returns the latest line; "": nothing has waited.
func (w *waitReporter) latest() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.said
}

// served prints the end of the wait, if there was a wait.
func (w *waitReporter) served(job ipc.JobOpenReply) {
	w.stop()
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

// givenUp prints that a signal has ended the wait, if there was a wait.
func (w *waitReporter) givenUp(sig os.Signal) {
	w.stop()
	if w.said != "" {
		w.sayAbout("%v: the place in the queue is given up", sig)
	}
}

// sayAbout prints a line on stderr that begins with the name of the job.
func (w *waitReporter) sayAbout(format string, args ...any) {
	if w.who != "" {
		format, args = "%s: "+format, append([]any{report.Escape(w.who)}, args...)
	}
	w.say(format, args...)
}

// devicesOf names the devices of a job, such as "GPU 0,2".
func devicesOf(job ipc.JobOpenReply) string {
	if job.Devices == 1 && job.Device[0].Vendor == ipc.VendorCPU {
		return accounting.DeviceName(int(job.Device[0].Index), true)
	}
	return "GPU " + indices(job)
}

// indices returns the indices of the devices of a job, such as "0,2".
func indices(job ipc.JobOpenReply) string {
	var list []string
	for _, d := range job.Device[:job.Devices] {
		list = append(list, fmt.Sprint(d.Index))
	}
	return strings.Join(list, ",")
}
