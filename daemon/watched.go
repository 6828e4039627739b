package daemon

// This file watches processes until they end: clients, runners and anchor processes. sessions.go and jobs.go say what
// happens then; processend.go receives the events.

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/daemon/inventory"
	"github.com/gpuarb/gpuarb/internal/procfacts"
	"github.com/gpuarb/gpuarb/ipc"
)

// watched is a process whose end the daemon waits for: a client, a runner or an anchor process. The daemon's lock
// guards it.
type watched struct {
	procfacts.Started        // PID 0: no process is watched
	pidfd             int    // owned by this struct; −1: there is none
	ended             func() // called with the daemon's lock held
}

// watcher is the thread that waits for the ends of processes.
type watcher = inventory.Reaper[*watched]

// startedOf returns the process at the other end of a connection.
func startedOf(p ipc.Peer) procfacts.Started {
	return procfacts.Started{PID: p.PID, StartTicks: p.StartTicks}
}

// watch calls ended when a process ends. It takes ownership of the pidfd, and closes it if the process cannot be
// watched.
func (w *watched) watch(by *watcher, p procfacts.Started, pidfd int, ended func()) error {
	w.Started, w.pidfd, w.ended = p, -1, ended
	if err := by.Add(pidfd, w); err != nil {
		closeFD(pidfd)
		return fmt.Errorf("pidfd of process %d: %w", p.PID, err)
	}
	w.pidfd = pidfd
	return nil
}

// unwatch ends the watch.
func (w *watched) unwatch(by *watcher) {
	by.Remove(w)
	closeFD(w.pidfd)
	w.Started, w.pidfd = procfacts.Started{}, -1
}

// pidfdOf reports whether the process with this PID and start time has gone, and returns its pidfd, or −1 if none
// can be opened. A process counts as gone only if the kernel says so.
func pidfdOf(inv machine, p procfacts.Started) (pidfd int, gone bool) {
	pidfd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		pidfd = -1
		if errors.Is(err, unix.ESRCH) {
			return -1, true
		}
	}
	now, err := inv.StartTicks(p.PID)
	if errors.Is(err, procfacts.ErrGone) || err == nil && now != p.StartTicks {
		closeFD(pidfd)
		return -1, true
	}
	return pidfd, false
}
