package ipc

import (
	"errors"
	"fmt"
)

// ProtocolError says what is wrong with a message: the status that an error
// reply should carry, and a sentence with the offending values.
type ProtocolError struct {
	Status Status // 100 or more
	Text   string
}

// Error is the text and the status.
func (e *ProtocolError) Error() string { return fmt.Sprintf("%s (%v)", e.Text, e.Status) }

// Unwrap lets errors.Is(err, StatusMalformed) and its like answer.
func (e *ProtocolError) Unwrap() error { return e.Status }

// Fatal tells that the sender and we do not speak the same language, so that
// the connection should be closed after the error reply.
func (e *ProtocolError) Fatal() bool {
	return e.Status == StatusMalformed || e.Status == StatusVersion
}

func refuse(status Status, format string, args ...any) *ProtocolError {
	return &ProtocolError{Status: status, Text: fmt.Sprintf(format, args...)}
}

func malformed(format string, args ...any) *ProtocolError {
	return refuse(StatusMalformed, format, args...)
}

// ReplyError is a reply whose status is not StatusOK: a refusal by policy below
// 100, an error from 100 on. errors.Is finds its Status:
// errors.Is(err, ipc.StatusDeviceFull).
type ReplyError struct {
	Type   Type   // of the request
	Status Status // never StatusOK
	Text   string // for people; may be empty
}

// Error names the request, the status, and what the daemon said.
func (e *ReplyError) Error() string {
	if e.Text == "" {
		return fmt.Sprintf("%v: %v", e.Type, e.Status)
	}
	return fmt.Sprintf("%v: %s (%v)", e.Type, e.Text, e.Status)
}

// Unwrap is the Status.
func (e *ReplyError) Unwrap() error { return e.Status }

var statusNames = map[Status]string{
	StatusOK: "ok", StatusOverBudget: "over budget", StatusDeviceFull: "device full",
	StatusTooLarge: "too large", StatusStreams: "too many streams", StatusSharedFull: "shared budget full",
	StatusDeviceLost: "device lost", StatusDenied: "denied", StatusBusy: "busy", StatusTimeout: "waited too long",
	StatusCancelled: "cancelled", StatusDeadlock: "deadlock", StatusSlots: "no slot", StatusCrowded: "no place in the queue", StatusWaiting: "waiting",
	StatusMalformed: "malformed message",
	StatusVersion:   "unknown version", StatusOrder: "out of order", StatusUnknownType: "unknown type",
	StatusNoSession: "no such session", StatusNoDevice: "no such device", StatusNoLease: "no such lease",
	StatusPermission: "permission denied", StatusUnsupported: "unsupported", StatusTooMany: "too many",
	StatusInternal: "internal error", StatusShuttingDown: "shutting down", StatusRange: "value out of range",
}

// String is a short name, or the number of a status that is not known here.
func (s Status) String() string {
	if name, ok := statusNames[s]; ok {
		return name
	}
	return fmt.Sprintf("status %d", uint32(s))
}

// Error makes each status an error that errors.Is can look for.
func (s Status) Error() string { return s.String() }

// Names for errors.Is of what a request that waits, or is not to, can end with.
const (
	ErrBusy      = StatusBusy
	ErrTimeout   = StatusTimeout
	ErrCancelled = StatusCancelled
	ErrDeadlock  = StatusDeadlock
)

// IsError tells an error (from 100 on) from a refusal by policy or success.
func (s Status) IsError() bool { return s >= 100 }

// Errors of connections. They may come wrapped.
var (
	// ErrSlowReader: the peer does not read what is sent to it. The connection
	// was closed.
	ErrSlowReader = errors.New("the peer does not read its replies")
	// ErrSilent: no message came on a new connection for as long as it may be silent.
	ErrSilent = errors.New("the connection says nothing")
	// ErrPageFault: the kernel could not give the memory of a lease page.
	ErrPageFault = errors.New("the lease page cannot be used any more")
	// ErrNoDaemon: nothing answers on any of the paths tried.
	ErrNoDaemon = errors.New("no gpuarb daemon answers")
)
