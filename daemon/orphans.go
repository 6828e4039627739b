package daemon

// Orphaned jobs. A job outlives its runner (`gpuarb run`) if its command left a process behind: a program in the background, or one that made
// itself a daemon. Each process of a job has the job's token in its environment, and keeps it over fork, setsid and exec. So when the runner has
// ended and no process of the job has a session, the daemon looks for the token in the environments of all processes. A process that has
// it becomes the job's anchor process (job.by) in the place of the runner, until it ends too. If there is no such process, the job has ended.
// jobs.go enters the jobs for this search.

import (
	"time"

	"github.com/gpuarb/gpuarb/arbiter/wording"
	"github.com/gpuarb/gpuarb/internal/procfacts"
)

// variableOfJob is the environment variable with the token, and its "=".
const variableOfJob = "GPUARB_JOB="

// orphanPatience is how long a request waits at most until it is known which orphaned jobs have ended.
const orphanPatience = 10 * time.Second

// searchOrphans pauses after a search for searchPauseFactor times as long as the search took, but for searchPauseMax at most.
const (
	searchPauseFactor = 3
	searchPauseMax    = time.Second
)

// searchOrphans searches for the processes of orphaned jobs, and looks at the names of anchor processes again. Because it pauses afterwards, it runs
// for a quarter of the time at most, unless a search takes longer than searchPauseMax/searchPauseFactor.
func (d *Daemon) searchOrphans() <-chan time.Time {
	began := time.Now()
	d.searchProcesses()
	next := readEvery
	if d.refreshAnchorNames() > fewNames {
		next = nameEvery
	}
	d.sleep(time.After(min(searchPauseFactor*time.Since(began), searchPauseMax))) // by the real clock: tests may replace the daemon's
	return d.after(next)
}

// Up to fewNames anchor processes have their names looked at every second; if there are more, less often (nameEvery).
const fewNames = 64

// refreshAnchorNames looks again at the names of anchor processes, because a shell may have become another program. It returns how many
// anchor processes there are.
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

// searchProcesses goes through the machine's processes once, without the lock, for all jobs that were entered, and settles each of them.
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
			pidfd, gone = stillThere(d.inv, p)
			name = d.programAt(p)
		}
		d.settleOrphan(j, p, pidfd, ok, gone, name)
	}
	close(done)
}

// programAt names a process: "ssh-agent[4711]".
func (d *Daemon) programAt(p procfacts.Started) string {
	f, _ := d.inv.Facts(p.PID) // without them it has its PID
	return wording.Process(f.Exe, f.Command, "", p.PID)
}

// tokenVariable returns the entry that each process of the job has in its environment.
func tokenVariable(j *job) string { return variableOfJob + j.token.Hex() }

// settleOrphan makes the process that was found the job's anchor process, and keeps its name for messages; if none was found, the job ends.
func (d *Daemon) settleOrphan(j *job, p procfacts.Started, pidfd int, found, gone bool, name string) {
	d.lock()
	defer d.unlock()
	switch {
	case d.stopping(), j.closed, j.anchor.PID != 0, d.jobs[j.token] != j:
		closeFD(pidfd)
	case found && gone: // it has ended since, and may have left a process behind in turn
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

// awaitOrphans waits until it is known which jobs have ended whose runners have ended, for orphanPatience at most. A request with NoWait calls it,
// so that it is not refused for memory of a job of which nothing lives any more.
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
