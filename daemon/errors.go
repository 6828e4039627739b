package daemon

// This file has the errors that clients see, each with the status of its reply. All files of this package use it.

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/procfacts"
	"github.com/gpuarb/gpuarb/ipc"
)

// errStopped is the error of a start or change during which Stop was called.
var errStopped = errors.New("the daemon is being stopped")

// wireError is an error with the status of its reply.
type wireError struct {
	status ipc.Status
	text   string
}

func (e *wireError) Error() string { return e.text }

func refused(status ipc.Status, format string, args ...any) error {
	return &wireError{status, fmt.Sprintf(format, args...)}
}

// statusOf returns the status of the reply for an error of any package.
func statusOf(err error) ipc.Status {
	var w *wireError
	var p *ipc.ProtocolError
	var r *arbiter.Result
	switch {
	case errors.As(err, &w):
		return w.status
	case errors.As(err, &p):
		return p.Status
	case errors.As(err, &r):
		return statusOfReason(r.Reason)
	case errors.Is(err, procfacts.ErrGone), errors.Is(err, arbiter.ErrNoSession):
		return ipc.StatusNoSession
	case errors.Is(err, arbiter.ErrNoDevice):
		return ipc.StatusNoDevice
	case errors.Is(err, rules.ErrPermission):
		return ipc.StatusPermission
	case errors.Is(err, rules.ErrRange):
		return ipc.StatusRange
	}
	return ipc.StatusInternal
}

// reasonStatuses maps the arbiter's reasons to the statuses of replies.
var reasonStatuses = map[arbiter.Reason]ipc.Status{
	arbiter.ReasonOverBudget: ipc.StatusOverBudget, arbiter.ReasonSharedFull: ipc.StatusSharedFull,
	arbiter.ReasonDeviceFull: ipc.StatusDeviceFull, arbiter.ReasonTooLarge: ipc.StatusTooLarge,
	arbiter.ReasonStreams: ipc.StatusStreams, arbiter.ReasonDeviceLost: ipc.StatusDeviceLost,
	arbiter.ReasonDenied: ipc.StatusDenied, arbiter.ReasonThreads: ipc.StatusDenied,
	arbiter.ReasonNoLease: ipc.StatusNoLease, arbiter.ReasonRange: ipc.StatusRange,
	arbiter.ReasonBusy: ipc.StatusBusy, arbiter.ReasonCrowded: ipc.StatusCrowded,
	arbiter.ReasonTimeout: ipc.StatusTimeout, arbiter.ReasonCancelled: ipc.StatusCancelled,
	arbiter.ReasonDeadlock: ipc.StatusDeadlock, arbiter.ReasonSlots: ipc.StatusSlots,
}

func statusOfReason(r arbiter.Reason) ipc.Status {
	if status, ok := reasonStatuses[r]; ok {
		return status
	}
	return ipc.StatusInternal
}

// withCaller adds the name of the refused program to the text of a refusal. It returns other errors unchanged.
func withCaller(caller string, err error) error {
	var refusal *arbiter.Result
	if !errors.As(err, &refusal) {
		return err
	}
	told := *refusal
	told.Explain = caller + ": " + told.Explain
	return &told
}

// errnoOf returns the errno with which a write into the filesystem fails.
func errnoOf(err error) unix.Errno {
	var refusal *arbiter.Result
	switch {
	case errors.Is(err, errStopped):
		return unix.ENOTCONN
	case errors.As(err, &refusal), statusOf(err) == ipc.StatusTooMany:
		return unix.ENOSPC // no room for a memory.min, or for the record of the change
	case errors.Is(err, rules.ErrPermission):
		return unix.EPERM
	case errors.Is(err, rules.ErrRange):
		return unix.EINVAL
	case errors.Is(err, arbiter.ErrNoJob), errors.Is(err, arbiter.ErrNoSession), errors.Is(err, arbiter.ErrNoDevice):
		return unix.ENODEV
	}
	return unix.EIO
}
