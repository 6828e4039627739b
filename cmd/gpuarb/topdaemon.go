package main

// This file connects the screen of `gpuarb top` (package top) with the daemon: it fetches
// snapshots, and carries out the actions that the user confirms. It implements top.Daemon.

import (
	"context"
	"errors"
	"fmt"

	"github.com/gpuarb/gpuarb/cmd/gpuarb/top"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/ipc"
	"golang.org/x/sys/unix"
)

// topDaemon is the connection of `gpuarb top` to the daemon. It uses only the socket that answered
// first, because after the end of the user's own daemon the system's would answer. Snapshots share
// one session, because a new session is refused if other clients use all connections. Each change
// opens a session of its own, so that it does not wait for a snapshot. topDaemon prints nothing,
// because that would spoil the screen.
type topDaemon struct {
	path string // path of the socket
	kept ipc.ReopeningClient
}

func newTopDaemon(path string) *topDaemon {
	w := &topDaemon{path: path}
	w.kept.Open = w.session
	return w
}

// session opens a new session.
func (w *topDaemon) session(ctx context.Context) (*ipc.Client, error) {
	return connectQuietly(ctx, []string{w.path})
}

// Snapshot returns the state of the daemon.
func (w *topDaemon) Snapshot(ctx context.Context) (s figures.Snapshot, err error) {
	err = w.kept.Ask(ctx, func(client *ipc.Client) (err error) {
		s, err = snapshotOf(ctx, client)
		return err
	})
	return s, err
}

// limitRequest returns the request that changes a limit.
func limitRequest(action top.Action) (ipc.LimitRequest, error) {
	request := ipc.LimitRequest{Target: ipc.LimitProcess, ID: uint64(action.PID), Device: ipc.AllDevices}
	if action.PID == 0 {
		request.Target, request.ID = ipc.LimitJob, action.Job
	}
	if action.Device >= 0 && action.Limit != "streams.max" {
		request.Device = uint32(action.Device)
	}
	return request, setLimit(&request, action.Limit, action.Value)
}

// Check reports what is wrong with an action, without a question to the daemon.
func (w *topDaemon) Check(action top.Action) error {
	if action.Kind != top.SetLimit {
		return nil
	}
	_, err := limitRequest(action)
	return err
}

// Do carries out an action.
func (w *topDaemon) Do(ctx context.Context, action top.Action) error {
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
			return fmt.Errorf("ticket %d does not wait any more: it was served, or given up", action.Ticket)
		}
		return explainCall(client.Path(), err)
	case top.Suspend, top.Resume:
		return explainSuspend(client, client.Suspend(ctx, action.Job, action.Kind == top.Resume))
	}
	request, err := limitRequest(action)
	if err != nil {
		return err
	}
	return explainCall(client.Path(), client.SetLimit(ctx, request))
}

// signalTo sends a signal to the process that the row showed, never to a later process with its
// PID. It opens a pidfd first. Then it asks the daemon, which watches the process, whether the PID
// still belongs to the same job.
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
	if !isStillOf(s, action) {
		return fmt.Errorf("process %d uses no device any more: no signal was sent", action.PID)
	}
	if err := unix.PidfdSendSignal(pidfd, unix.SignalNum("SIG"+action.Signal), nil, 0); err != nil {
		return fmt.Errorf("SIG%s to process %d: %w", action.Signal, action.PID, err)
	}
	return nil
}

// isStillOf reports whether a process still belongs to the job that the row showed. For a row
// without a job it reports whether the process is still unmanaged.
func isStillOf(s figures.Snapshot, action top.Action) bool {
	if action.Job == 0 {
		return unmanaged(s, uint64(action.PID)) != nil
	}
	if p := s.Process(action.PID); p != nil {
		return p.Job == action.Job
	}
	j := s.Job(action.Job)
	return j != nil && j.PID == action.PID
}
