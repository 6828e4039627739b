package daemon

// This file handles orphaned jobs. A job outlives its runner (`gpuarb run`) if its command left a process behind,
// such as a background program or a daemon. jobs.go queues the jobs for the search here; loops.go runs it.
//
// Each process of a job has the job's token in its environment, and keeps it over fork, setsid and exec. If the
// runner has ended and no process of the job has a session, the daemon searches the environments of all processes for
// the token. A process that has it replaces the runner as the job's anchor process (job.anchor) until that process
// ends too. If there is no such process, the job has ended.

import (
	"time"

	"github.com/gpuarb/gpuarb/arbiter/wording"
	"github.com/gpuarb/gpuarb/internal/procfacts"
)

// variableOfJob is the name of the environment variable with the token, with "=".
const variableOfJob = "GPUARB_JOB="

// orphanPatience is how long a request waits at most until it is known which orphaned jobs have ended.
const orphanPatience = 10 * time.Second

// After a search, searchOrphans pauses for searchPauseFactor times the duration of the search, but at most for
// searchPauseMax.
const (
	searchPauseFactor = 3
	searchPauseMax    = time.Second
)

// searchOrphans searches for the processes of orphaned jobs, and reads the names of anchor processes again. Because
// of its pause it runs at most a quarter of the time, unless a search takes longer than
// searchPauseMax/searchPauseFactor.
func (d *Daemon) searchOrphans() <-chan time.Time {
	began := time.Now()
	d.searchProcesses()
	next := readEvery
	if d.refreshAnchorNames() > fewNames {
		next = nameEvery
	}
	d.sleep(time.After(min(searchPauseFactor*time.Since(began), searchPauseMax))) // real time: tests may replace the daemon's clock
	return d.after(next)
}

// fewNames is the number of anchor processes up to which their names are read every second. The names of more
// processes are read every nameEvery.
const fewNames = 64

// refreshAnchorNames reads the names of anchor processes again, because a shell may have executed another program. It
// returns the number of anchor processes.
func (d *Daemon) refreshAnchorNames() int {
	by := map[*job]procfacts.Started{}
	d.lock()
	for _, j := range d.jobs {
		if d.file.Jobs.At(j.index).Released == jobCommandEnded && j.anchor.PID != 0 {
			by[j] = j.anchor.Started
		}
	}
	d.unlock()
	for j, p := range by {
		name := d.programAt(p)
		d.lock()
		if !j.closed && j.anchor.Started == p {
			d.arb.CommandEnded(j.id, name)
		}
		d.unlock()
	}
	return len(by)
}

// searchProcesses reads the environments of all processes once, without the lock, and settles all queued jobs.
func (d *Daemon) searchProcesses() {
	d.lock()
	jobs, done := d.orphans.jobs, d.orphans.done
	d.orphans.jobs = map[*job]struct{}{}
	variables := map[string]uint32{}
	for j := range jobs {
		variables[tokenVariable(j)] = j.uid
	}
	d.unlock()
	if len(jobs) == 0 {
		return
	}
	found := d.inv.WithEnviron(variables)
	for j := range jobs {
		p, ok := found[tokenVariable(j)]
		pidfd, gone, name := -1, false, ""
		if ok {
			pidfd, gone = pidfdOf(d.inv, p)
			name = d.programAt(p)
		}
		d.settleOrphan(j, p, pidfd, ok, gone, name)
	}
	close(done)
}

// programAt returns the name of a process, such as "ssh-agent[4711]".
func (d *Daemon) programAt(p procfacts.Started) string {
	f, _ := d.inv.Facts(p.PID) // if this fails, the name is only the PID
	return wording.Process(f.Exe, f.Command, "", p.PID)
}

// tokenVariable returns the environment entry that each process of the job has.
func tokenVariable(j *job) string { return variableOfJob + j.token.Hex() }

// settleOrphan makes the found process the job's anchor process, and keeps its name for messages. If none was found,
// the job ends.
func (d *Daemon) settleOrphan(j *job, p procfacts.Started, pidfd int, found, gone bool, name string) {
	d.lock()
	defer d.unlock()
	switch {
	case d.stopping(), j.closed, j.anchor.PID != 0, d.jobs[j.token] != j:
		closeFD(pidfd)
	case found && gone: // the process has ended since, and may itself have left a process behind
		d.queueSearchLocked(j)
	case found:
		record := d.file.Jobs.At(j.index)
		record.RunnerStart, record.RunnerPID = p.StartTicks, uint32(p.PID)
		if err := d.watchJob(j, p, pidfd); err != nil {
			d.log.Warn("a process that a job lives by cannot be watched", "job", j.id, "client_pid", p.PID, "err", err)
			d.endRunnerLocked(j)
			return
		}
		d.commandEndedLocked(j, name)
		d.log.Debug("the command of a job has ended, and something of it lives on", "job", j.id, "client_pid", p.PID)
	case j.live == 0:
		d.endRunnerLocked(j)
	}
}

// awaitOrphans waits, for orphanPatience at most, until it is known which orphaned jobs have ended. A request with
// NoWait calls it, so that the memory of an ended job is not the cause of a refusal.
func (cl *client) awaitOrphans() {
	d := cl.d
	cl.turn.WhileReleased(func() {
		d.reaper.Sync()
		d.lock()
		done := d.orphans.done
		d.unlock()
		select {
		case <-done:
		case <-d.after(orphanPatience):
		case <-d.ctx.Done():
		}
	})
}
