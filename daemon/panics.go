package daemon

// This file deals with broken invariants: panics of the daemon's own code. After a panic the daemon's data in memory cannot be trusted. So
// the process becomes a new daemon, which takes up what the state file says, as after a kill. Its PID, the socket and the lock stay, so that
// clients only see a pause. All panics come to broken: those under the lock by unlock, others by caught.
//
// Before a client's request is applied, the client's process is written to a file (client.takeLock, statefile.Failures). A process whose
// requests broke the daemon twice is not served any more. If the daemon fails for the third time within a minute, the state file is set aside
// (openFailures, in statefiles.go).

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/gpuarb/gpuarb/internal/procfacts"
	"github.com/gpuarb/gpuarb/internal/statefile"
	"github.com/gpuarb/gpuarb/ipc"
)

const (
	failureWindow  = time.Minute
	mostTries      = 2               // failures after which a client, or within failureWindow a state file, is not tried once more
	failurePause   = 3 * time.Second // before a start that is likely to fail
	brokenPatience = time.Second     // how long writing the log line may take
)

// applyLocked writes to the file of failures that a request of a process, or its recovery, is applied until the lock is given back.
func (d *Daemon) applyLocked(of procfacts.Started) {
	if d.failures != nil {
		d.failures.Apply(uint32(of.PID), of.StartTicks)
	}
}

// applying returns the process whose request is applied; the zero value: none.
func (d *Daemon) applying() (of procfacts.Started) {
	if d.failures == nil {
		return of
	}
	if pid, start := d.failures.Applying(); pid != 0 {
		of = procfacts.Started{PID: int(pid), StartTicks: start}
	}
	return of
}

// barredError returns the answer to every request of a process whose requests broke the daemon.
func barredError(pid int) error {
	return refused(ipc.StatusPermission, "requests of this process (PID %d) broke the daemon twice, and it is not served any more: see \"broken invariant\" in the daemon's log, "+
		"report it, and start the program again", pid)
}

// caught turns a panic of the goroutine that defers it into a new start of the daemon. Each goroutine of the daemon defers it. cl is the
// client that the goroutine serves, or nil.
func (d *Daemon) catchPanic(cl *client) {
	if cause := recover(); cause != nil {
		var who procfacts.Started
		var request ipc.Type
		if cl != nil {
			who, request = startedOf(cl.conn.Peer()), cl.request
		}
		d.restartAfterPanic(cause, who, request)
	}
}

// broken logs a panic and starts the daemon again. It does not return. The process whose request it was is written down as the cause; the
// zero value: none. It is called in the goroutine that panicked, because its stack shows the place. If that goroutine holds the lock, it goes on holding it, so that no other goroutine acts on broken data.
func (d *Daemon) restartAfterPanic(cause any, who procfacts.Started, request ipc.Type) {
	if d.restart == nil {
		panic(cause)
	}
	stack := debug.Stack()
	d.restartOnce.Do(func() {
		if d.failures != nil {
			d.failures.Add(statefile.Failure{At: int64(d.uptime()), PID: uint32(who.PID), StartTicks: who.StartTicks})
		}
		d.logs.Stop()
		said := background(func() error {
			r := slog.NewRecord(time.Now(), slog.LevelError, "broken invariant: the daemon starts itself again", 0)
			r.Add("cause", fmt.Sprint(cause), "client_pid", who.PID, "client_start", who.StartTicks, "request", request.String(), "stack", string(stack))
			return d.handler.Handle(context.Background(), r)
		})
		late, cancel := context.WithTimeout(context.Background(), brokenPatience)
		defer cancel()
		_ = inTime(late, said)
		if d.page != nil {
			d.page.Kill()
		}
		d.restart(d.handOver())
	})
	select {} // another goroutine starts the daemon again
}

// keep returns the descriptors that the next daemon takes over, −1 for each that it cannot have; nil: there is no next daemon, because this
// one was being stopped.
func (d *Daemon) handOver() *ipc.ListenerFDs {
	none := &ipc.ListenerFDs{Socket: -1, Lock: -1}
	switch {
	case d.stopping():
		return nil
	case d.listener == nil:
		return none
	}
	if k, err := d.listener.KeepOverExec(); err == nil {
		return &k
	}
	return none
}
