package daemon

// This file handles panics of the daemon's own code ("broken invariant"). After a panic the data in memory cannot be
// trusted. The process therefore becomes a new daemon, which recovers from the state file as after a kill. The PID,
// the socket and the lock stay, so that clients see only a pause. All panics reach restartAfterPanic: unlock catches
// those under the lock, catchPanic all others.
//
// Before a client's request is applied, its process is written to a file (client.takeLock, statefile.Failures). A
// process whose requests caused two panics is no longer served. After the third panic within a minute the state file
// is set aside (openFailures, in statefiles.go).

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
	maxFailures    = 2               // panics after which a client is no longer served; within failureWindow also the limit for one state file
	failurePause   = 3 * time.Second // pause before a start that is likely to fail
	brokenPatience = time.Second     // time for writing the log line
)

// applyLocked records in the file of failures that a request of a process, or its recovery, is being applied. unlock
// clears the record.
func (d *Daemon) applyLocked(of procfacts.Started) {
	if d.failures != nil {
		d.failures.Apply(uint32(of.PID), of.StartTicks)
	}
}

// applying returns the process whose request is being applied; the zero value: none.
func (d *Daemon) applying() (of procfacts.Started) {
	if d.failures == nil {
		return of
	}
	if pid, start := d.failures.Applying(); pid != 0 {
		of = procfacts.Started{PID: int(pid), StartTicks: start}
	}
	return of
}

// barredError returns the reply to every request of a process that is no longer served.
func barredError(pid int) error {
	return refused(ipc.StatusPermission, "requests of this process (PID %d) broke the daemon twice, and it is not served any more: see \"broken invariant\" in the daemon's log, "+
		"report it, and start the program again", pid)
}

// catchPanic turns a panic into a restart of the daemon. Every goroutine of the daemon must defer it. cl is the
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

// restartAfterPanic logs a panic and restarts the daemon. It does not return. who is the process whose request caused
// the panic, which is recorded; the zero value: none.
//
// The goroutine that panicked must call it, because its stack shows the place. If that goroutine holds the lock, the
// lock stays held, so that no other goroutine uses broken data.
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
		_ = waitUntil(late, said)
		if d.page != nil {
			d.page.Kill()
			d.archive.Kill()
		}
		d.restart(d.handOver())
	})
	select {} // the first caller restarts the daemon
}

// handOver returns the descriptors for the next daemon, −1 for a descriptor that it cannot have. nil: this daemon was
// being stopped, and there is no next one, or systemd must start it, with a new mount.
func (d *Daemon) handOver() *ipc.ListenerFDs {
	none := &ipc.ListenerFDs{Socket: -1, Lock: -1}
	switch {
	case d.stopping(), d.mounted != nil:
		return nil
	case d.listener == nil:
		return none
	}
	if k, err := d.listener.KeepOverExec(); err == nil {
		return &k
	}
	return none
}
