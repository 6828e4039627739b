package daemon

// This file reads the processes that the state file names, before recover.go recovers the state.

import (
	"errors"

	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/procfacts"
	"github.com/gpuarb/gpuarb/internal/statefile"
)

// savedProcesses stores the facts of the processes that the records name. It leaves out barred processes, whose
// requests caused panics.
type savedProcesses struct {
	facts    map[procfacts.Started]rules.Process // facts of the live processes
	sessions []*recovered                        // all recorded sessions, with the pages that could be opened

	suspensions []*savedSuspension
}

// recovered is a session of the last daemon.
type recovered struct {
	*session
	proc   rules.Process // facts of its process; after its end only the user and group
	ended  bool          // the process has ended
	leases []int         // indexes of the records of its leases
}

// readProcesses reads the facts of the processes that the records name. It needs no lock, because no other goroutine
// changes records yet.
func (d *Daemon) readProcesses() *savedProcesses {
	f := &savedProcesses{facts: map[procfacts.Started]rules.Process{}}
	look := func(pid uint32, start uint64) (lives bool) {
		p := procfacts.Started{PID: int(pid), StartTicks: start}
		if _, known := f.facts[p]; known || pid == 0 || d.barred[p] || d.stopping() {
			return known
		}
		proc, lives := d.factsOf(p)
		if lives {
			f.facts[p] = proc
		}
		return lives
	}
	d.file.Sessions.Each(func(i int, r *statefile.Session) {
		x := &recovered{session: sessionOf(i, r)}
		if look(r.PID, r.StartTicks) {
			x.page = findPage(x.peer.PID, x.pageID())
		}
		f.sessions = append(f.sessions, x)
	})
	d.file.Jobs.Each(func(_ int, r *statefile.Job) { look(r.RunnerPID, r.RunnerStart) })
	d.file.Tickets.Each(func(_ int, r *statefile.Ticket) { look(r.PID, r.StartTicks) })
	f.suspensions = d.readSuspensions()
	return f
}

// factsOf returns the facts of a live process with this PID and start time. If the facts cannot be read, the process
// counts as live, with only PID and start time known.
func (d *Daemon) factsOf(p procfacts.Started) (proc rules.Process, lives bool) {
	f, err := d.inv.Facts(p.PID)
	switch {
	case errors.Is(err, procfacts.ErrGone), err == nil && f.StartTicks != p.StartTicks:
		return proc, false
	case err != nil:
		d.log.Warn("little is known of a program that runs: rules for its name, unit or group do not meet it", "client_pid", p.PID, "err", err)
		return rules.Process{PID: p.PID, StartTicks: p.StartTicks}, true
	}
	proc = process(f, p.PID)
	proc.Visible = d.inv.Variables(p.PID, rules.VisibleNames...)
	return proc, true
}

// open returns the facts and a pidfd of a process; -1: no pidfd could be opened. gone: the process has ended.
func (f *savedProcesses) open(d *Daemon, p procfacts.Started) (proc rules.Process, pidfd int, gone bool) {
	proc, lives := f.facts[p]
	if pidfd, gone = pidfdOf(d.inv, p); !lives {
		closeFD(pidfd)
		return proc, -1, true
	}
	return proc, pidfd, gone
}
