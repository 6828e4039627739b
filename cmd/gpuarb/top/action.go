package top

// This file has the interface to the daemon, and the changes that a user can make. dialog.go asks
// for them; topdaemon.go in cmd/gpuarb implements Daemon.

import (
	"context"
	"fmt"

	"github.com/gpuarb/gpuarb/internal/figures"
)

// Daemon is the connection of the screen to the daemon. Its methods may take long, so each call
// runs outside of the loop that draws.
type Daemon interface {
	// Snapshot returns the state of the daemon.
	Snapshot(context.Context) (figures.Snapshot, error)
	// Check reports what is wrong with an action, without a question to the daemon.
	Check(Action) error
	// Do carries out an action.
	Do(context.Context, Action) error
}

// Kind is a kind of action.
type Kind int

// The kinds.
const (
	SetLimit Kind = iota
	CancelTicket
	SendSignal
	Suspend
	Resume
)

// AllDevices is the device of an action that concerns all devices.
const AllDevices = -1

// Action is a change that a user asked for and confirmed.
type Action struct {
	Kind   Kind
	PID    int    // PID of the process; 0: the job is meant
	Job    uint64 // job of the process; 0: the process runs without gpuarb
	Device int    // device of the limit; AllDevices: all
	Limit  string // memory.max, memory.min or streams.max
	Value  string
	Ticket uint64
	Signal string // name of the signal without SIG
}

// description describes an action: "set memory.max=2G of process 4711 on GPU 0".
func (a Action) description(s *figures.Snapshot) string {
	switch a.Kind {
	case CancelTicket:
		return fmt.Sprintf("cancel ticket %d", a.Ticket)
	case SendSignal:
		return fmt.Sprintf("send SIG%s to process %d", a.Signal, a.PID)
	case Suspend:
		return fmt.Sprintf("ask job %d to give its memory back", a.Job)
	case Resume:
		return fmt.Sprintf("let job %d take its memory again", a.Job)
	}
	return fmt.Sprintf("set %s=%s of %s", a.Limit, a.Value, a.subject(s))
}

// subject names whose limit is changed, and on which device.
func (a Action) subject(s *figures.Snapshot) string {
	whose := fmt.Sprintf("process %d", a.PID)
	if a.PID == 0 {
		whose = fmt.Sprintf("job %d", a.Job)
	}
	if d := s.Device(a.Device); d != nil {
		return whose + " on " + d.Called()
	}
	return whose + " on every device"
}
