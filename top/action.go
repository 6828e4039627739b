package top

import (
	"context"
	"fmt"

	"github.com/gpuarb/gpuarb/figures"
)

// Daemon is what the screen asks of the daemon. Its methods may take long: each runs outside of the
// loop that draws.
type Daemon interface {
	// Snapshot is the daemon's state.
	Snapshot(context.Context) (figures.Snapshot, error)
	// Check says what is wrong with an action, without asking anybody.
	Check(Action) error
	// Do carries an action out.
	Do(context.Context, Action) error
}

// Kind is a kind of action.
type Kind int

// The kinds.
const (
	SetLimit Kind = iota
	CancelTicket
	SendSignal
)

// AllDevices is the device of an action that concerns each.
const AllDevices = -1

// Action is a change that a person asked for, and confirmed.
type Action struct {
	Kind   Kind
	PID    int    // of a process; 0: the job is meant
	Job    uint64 // its job; 0: it is no client
	Device int    // of a limit; AllDevices: each
	Limit  string // memory.max, memory.min or streams.max
	Value  string
	Ticket uint64
	Signal string // its name without SIG
}

// what spells an action as a request: "set memory.max=2G of process 4711 on GPU 0".
func (a Action) what(s *figures.Snapshot) string {
	switch a.Kind {
	case CancelTicket:
		return fmt.Sprintf("cancel ticket %d", a.Ticket)
	case SendSignal:
		return fmt.Sprintf("send SIG%s to process %d", a.Signal, a.PID)
	}
	return fmt.Sprintf("set %s=%s of %s", a.Limit, a.Value, a.subject(s))
}

// subject is whose limit is changed, and where.
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
