package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/gpuarb/gpuarb/figures"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/top"
	"golang.org/x/sys/unix"
)

// watched is the daemon as `gpuarb top` has it: the one that answered first, and no other once it has gone, which may be the
// system's in place of the user's own. Looks keep their session, as a new one is turned away when others have taken all
// connections; each change has one of its own, so that it does not wait for a look. It prints nothing, which would spoil the screen.
type watched struct {
	path string // of the daemon
	kept ipc.Kept
}

func newWatched(path string) *watched {
	w := &watched{path: path}
	w.kept.Open = w.session
	return w
}

// session opens a session of its own.
func (w *watched) session(ctx context.Context) (*ipc.Client, error) {
	return quietly(ctx, []string{w.path})
}

// Snapshot is the daemon's state.
func (w *watched) Snapshot(ctx context.Context) (s figures.Snapshot, err error) {
	err = w.kept.Ask(ctx, func(client *ipc.Client) (err error) {
		s, err = snapshotOf(ctx, client)
		return err
	})
	return s, err
}

// limitOf is the request for a change of a limit.
func limitOf(action top.Action) (ipc.LimitRequest, error) {
	request := ipc.LimitRequest{Target: ipc.LimitProcess, ID: uint64(action.PID), Device: ipc.AllDevices}
	if action.PID == 0 {
		request.Target, request.ID = ipc.LimitJob, action.Job
	}
	if action.Device >= 0 && action.Limit != "streams.max" {
		request.Device = uint32(action.Device)
	}
	return request, setLimit(&request, action.Limit, action.Value)
}

// Check says what is wrong with an action, without asking anybody.
func (w *watched) Check(action top.Action) error {
	if action.Kind != top.SetLimit {
		return nil
	}
	_, err := limitOf(action)
	return err
}

// Do carries an action out.
func (w *watched) Do(ctx context.Context, action top.Action) error {
	client, err := w.session(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	switch action.Kind {
	case top.SendSignal:
		return signalTo(ctx, client, action)
	case top.CancelTicket:
		n, err := client.Cancel(ctx, ipc.CancelRequest{Ticket: action.Ticket})
		if err == nil && n == 0 {
			return fmt.Errorf("ticket %d does not wait (any more)", action.Ticket)
		}
		return explainCall(client.Path(), err)
	}
	request, err := limitOf(action)
	if err != nil {
		return err
	}
	return explainCall(client.Path(), client.SetLimit(ctx, request))
}

// signalTo sends a signal to the process that the row showed, and never to another one that has its PID by
// now: it opens a pidfd first, and then asks the daemon, which watches the process, whether the PID is still the same job's.
func signalTo(ctx context.Context, client *ipc.Client, action top.Action) error {
	pidfd, err := unix.PidfdOpen(action.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("process %d has ended", action.PID)
	} else if err != nil {
		return fmt.Errorf("process %d: %w", action.PID, err)
	}
	defer unix.Close(pidfd)
	s, err := snapshotOf(ctx, client)
	if err != nil {
		return err
	}
	if !isStill(s, action) {
		return fmt.Errorf("process %d uses no device any more: no signal was sent", action.PID)
	}
	if err := unix.PidfdSendSignal(pidfd, unix.SignalNum("SIG"+action.Signal), nil, 0); err != nil {
		return fmt.Errorf("SIG%s to process %d: %w", action.Signal, action.PID, err)
	}
	return nil
}

// isStill says whether a process is still of the job that the row showed, or, of a row without a job, still
// unmanaged.
func isStill(s figures.Snapshot, action top.Action) bool {
	if action.Job == 0 {
		return unmanaged(s, uint64(action.PID)) != nil
	}
	if p := s.Process(action.PID); p != nil {
		return p.Job == action.Job
	}
	j := s.Job(action.Job)
	return j != nil && j.PID == action.PID
}
