package daemon

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/procfacts"
)

// mortal is a process whose end is waited for: a client's, or the one that a job lives by. The daemon's lock guards it.
type mortal struct {
	procfacts.Started        // PID 0: nothing is waited for
	pidfd             int    // ours; −1: there is none
	ended             func() // the daemon's lock is held
}

// startedOf is the process at the other end of a connection.
func startedOf(p ipc.Peer) procfacts.Started {
	return procfacts.Started{PID: p.PID, StartTicks: p.StartTicks}
}

// watch calls ended when a process ends. The pidfd is the mortal's from here on; if the process cannot be watched it is closed.
func (d *Daemon) watch(m *mortal, p procfacts.Started, pidfd int, ended func()) error {
	m.Started, m.pidfd, m.ended = p, -1, ended
	if err := d.reaper.Add(pidfd, m); err != nil {
		closeFD(pidfd)
		return fmt.Errorf("pidfd of process %d: %w", p.PID, err)
	}
	m.pidfd = pidfd
	return nil
}

// letGo ends the watch.
func (d *Daemon) letGo(m *mortal) {
	d.reaper.Remove(m)
	closeFD(m.pidfd)
	m.Started, m.pidfd = procfacts.Started{}, -1
}

// onExit is the reaper's word that a process is dead.
func (d *Daemon) onExit(m *mortal) {
	defer d.caught(nil)
	d.lock()
	defer d.unlock()
	m.ended()
}

// stillThere says whether a process is the one with this start time, and returns a pidfd
// of it where one is to be had. Only the kernel's word that it has gone makes it gone.
func (d *Daemon) stillThere(p procfacts.Started) (pidfd int, gone bool) {
	pidfd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		pidfd = -1
		if errors.Is(err, unix.ESRCH) {
			return -1, true
		}
	}
	now, err := d.inv.StartTicks(p.PID)
	if errors.Is(err, procfacts.ErrGone) || err == nil && now != p.StartTicks {
		closeFD(pidfd)
		return -1, true
	}
	return pidfd, false
}
