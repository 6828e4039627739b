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
	pidfd             int    // ours; −1: there is none, and it is looked at once a second
	ended             func() // the daemon's lock is held
}

// startedOf is the process at the other end of a connection.
func startedOf(p ipc.Peer) procfacts.Started {
	return procfacts.Started{PID: p.PID, StartTicks: p.StartTicks}
}

// watch has ended called when a process ends. Its pidfd, −1 where there is none, is the mortal's from here on. Where
// the reaper has no room for it, the process is one that is looked at; with any other error too.
func (d *Daemon) watch(m *mortal, p procfacts.Started, pidfd int, ended func()) error {
	m.Started, m.pidfd, m.ended = p, -1, ended
	if pidfd < 0 {
		return nil
	}
	err := d.spare.lend(func() error { return d.reaper.Add(pidfd, m) })
	if err == nil {
		m.pidfd = pidfd
		return nil
	}
	closeFD(pidfd)
	if ipc.IsShort(err) {
		d.short(err)
		return nil
	}
	return fmt.Errorf("pidfd of process %d: %w", p.PID, err)
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

// watchUnwatched looks at the processes that could not be watched: whether they live, and
// whether they can be now.
func (d *Daemon) watchUnwatched() {
	all := map[*mortal]procfacts.Started{}
	d.lock()
	for _, s := range d.sessions {
		if s.life.pidfd < 0 && s.life.PID != 0 {
			all[&s.life] = s.life.Started
		}
	}
	for _, j := range d.jobs {
		if j.by.pidfd < 0 && j.by.PID != 0 {
			all[&j.by] = j.by.Started
		}
	}
	d.unlock()
	for m, p := range all {
		pidfd, gone := d.stillThere(p)
		d.lock()
		switch {
		case m.Started != p || m.pidfd >= 0 || d.stopping():
			closeFD(pidfd)
		case gone:
			m.ended()
		default:
			_ = d.watch(m, p, pidfd, m.ended)
		}
		d.unlock()
	}
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
		if ipc.IsShort(err) {
			d.short(err)
		}
	}
	var now uint64
	err = d.spare.lend(func() (err error) { now, err = d.inv.StartTicks(p.PID); return err })
	if errors.Is(err, procfacts.ErrGone) || err == nil && now != p.StartTicks {
		closeFD(pidfd)
		return -1, true
	}
	return pidfd, false
}
