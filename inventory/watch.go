package inventory

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// EventKind says what happened to a process.
type EventKind int

// The kinds of ProcessEvent.
const (
	EventExec EventKind = iota + 1
	EventExit
)

// ProcessEvent is a hint that a process did exec or ended.
type ProcessEvent struct {
	Kind EventKind
	PID  int
}

// ErrUnavailable says that the kernel gives no process events here: it needs root
// in the machine's first namespaces.
var ErrUnavailable = errors.New("process events are not available")

// watchBuffer is how many events may wait for the handler before the kernel's own
// buffer has to hold them.
const watchBuffer = 1024

// Watch calls handler for each exec and each exit of a process on the machine,
// from one goroutine at a time, until ctx ends; it then returns nil.
//
// What it tells are hints: events are lost where the handler is slow or the
// machine busy, and the PID may be another's by the time that it is handled.
// Without the privilege it returns ErrUnavailable at once.
func Watch(ctx context.Context, handler func(ProcessEvent)) error {
	for {
		err := watchOnce(ctx, handler)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS): // we were too slow; what is lost is lost
			continue
		case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES),
			errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.ECONNREFUSED):
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		return fmt.Errorf("process events: %w", err)
	}
}

func watchOnce(ctx context.Context, handler func(ProcessEvent)) error {
	events := make(chan netlink.ProcEvent, watchBuffer)
	failed := make(chan error, 1)
	done := make(chan struct{})
	if err := netlink.ProcEventMonitor(events, done, failed); err != nil {
		close(done)
		return err
	}
	stop := context.AfterFunc(ctx, func() { close(done) })
	// The monitor closes events when its socket fails or was closed; until then it
	// must never find the channel full, or it would stay for good.
	for e := range events {
		if ctx.Err() != nil {
			continue
		}
		if hint, ok := hintOf(e); ok {
			handler(hint)
		}
	}
	if stop() {
		close(done) // the monitor ended by itself; let its helper go, and the socket with it
	}
	return <-failed
}

// hintOf picks out the events of whole processes.
func hintOf(e netlink.ProcEvent) (ProcessEvent, bool) {
	switch m := e.Msg.(type) {
	case *netlink.ExecProcEvent:
		return ProcessEvent{Kind: EventExec, PID: int(m.ProcessTgid)}, true
	case *netlink.ExitProcEvent:
		if m.ProcessPid == m.ProcessTgid { // else a thread
			return ProcessEvent{Kind: EventExit, PID: int(m.ProcessTgid)}, true
		}
	}
	return ProcessEvent{}, false
}
