package ipc

// This file has the errors of the protocol and of connections: ProtocolError for a message that is wrong, ReplyError
// for a reply that refuses, and one error value for each Status.

import (
	"errors"
	"fmt"
)

// ProtocolError describes a fault of a message: the status for the error reply, and a sentence with the wrong values.
type ProtocolError struct {
	Status Status // 100 or more
	Text   string
}

// Error returns the text and the status.
func (e *ProtocolError) Error() string { return fmt.Sprintf("%s (%v)", e.Text, e.Status) }

// Unwrap returns the Status, so that errors.Is(err, StatusMalformed) works.
func (e *ProtocolError) Unwrap() error { return e.Status }

// Fatal reports whether the sender speaks another protocol or version. The connection should then be closed after the
// error reply.
func (e *ProtocolError) Fatal() bool {
	return e.Status == StatusMalformed || e.Status == StatusVersion
}

// refuse returns a ProtocolError with a formatted text.
func refuse(status Status, format string, args ...any) *ProtocolError {
	return &ProtocolError{Status: status, Text: fmt.Sprintf(format, args...)}
}

// malformed returns a ProtocolError with StatusMalformed.
func malformed(format string, args ...any) *ProtocolError {
	return refuse(StatusMalformed, format, args...)
}

// ReplyError is a reply whose status is not StatusOK: a refusal by policy below 100, an error from 100 on. Its Status
// can be found with errors.Is(err, ipc.StatusDeviceFull).
type ReplyError struct {
	Type   Type   // of the request
	Status Status // never StatusOK
	Text   string // a sentence for users; may be empty
}

// Error returns the request's type, the daemon's text if there is one, and the status.
func (e *ReplyError) Error() string {
	if e.Text == "" {
		return fmt.Sprintf("%v: %v", e.Type, e.Status)
	}
	return fmt.Sprintf("%v: %s (%v)", e.Type, e.Text, e.Status)
}

// Unwrap returns the Status.
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

// String returns a short name, or the number of a status that this version does not know.
func (s Status) String() string {
	if name, ok := statusNames[s]; ok {
		return name
	}
	return fmt.Sprintf("status %d", uint32(s))
}

// Error returns the same text as String. It makes each status an error for errors.Is.
func (s Status) Error() string { return s.String() }

// The statuses with which a request that may wait can end, under names for errors.Is.
const (
	ErrBusy      = StatusBusy
	ErrTimeout   = StatusTimeout
	ErrCancelled = StatusCancelled
	ErrDeadlock  = StatusDeadlock
)

// IsError reports whether s is an error (100 or more), in contrast to success or a refusal by policy.
func (s Status) IsError() bool { return s >= 100 }

// Errors of connections. Callers may receive them wrapped.
var (
	// ErrSlowReader means that the peer does not read its messages. The connection has been closed.
	ErrSlowReader = errors.New("the peer does not read its replies")
	// ErrSilent means that no message came on a new connection within ListenOptions.Patience.
	ErrSilent = errors.New("the connection says nothing")
	// ErrPageFault means that the kernel had no memory for a lease page.
	ErrPageFault = errors.New("the lease page cannot be used any more")
	// ErrNoDaemon means that no daemon answers on any of the tried paths.
	ErrNoDaemon = errors.New("no gpuarb daemon answers")
)
