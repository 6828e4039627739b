package daemon

import (
	"time"

	"github.com/gpuarb/gpuarb/arbiter/wording"
	"github.com/gpuarb/gpuarb/procfacts"
)

// A job outlives its runner where it left something behind: a program in the background,
// one that made itself a daemon. What belongs to a job has its token in the environment,
// and keeps it over fork, setsid and exec. So when the runner has ended and no member is
// connected, the processes of the machine are looked through for the token. One that has it
// stands in for the runner, until it ends too; where none has it, the job has ended.

// variableOfJob names the token in the environment.
const variableOfJob = "GPUARB_JOB="

// settlePatience is how long a request waits for others' ends to be known.
const settlePatience = 10 * time.Second

// left are the jobs of which it is to be found out whether anything of them lives.
type left struct {
	jobs map[*job]struct{}
	done chan struct{} // closed when the latest of them are known
	wake chan struct{}
}

func newLeft() left {
	done := make(chan struct{})
	close(done)
	return left{jobs: map[*job]struct{}{}, done: done, wake: make(chan struct{}, 1)}
}

// The values of Job.Released in the state file.
const (
	jobReleased = 1 // the job holds nothing beyond its processes any more
	jobLeft     = 2 // the job's command has ended, and the job holds what it held
)

// commandEndedLocked notes that a job's command has ended; left names what it left behind, "" if that is not known.
func (d *Daemon) commandEndedLocked(j *job, left string) {
	if r := d.file.Jobs.At(j.index); r.Released == 0 {
		r.Released = jobLeft
	}
	d.arb.CommandEnded(j.id, left)
}

// runnerEndedLocked is for a job that has nobody to live by any more.
func (d *Daemon) runnerEndedLocked(j *job) {
	d.letRunnerGoLocked(j)
	d.lookForLocked(j)
}

// letRunnerGoLocked has the job live by nobody.
func (d *Daemon) letRunnerGoLocked(j *job) {
	d.letGo(&j.by)
	d.file.Jobs.At(j.index).RunnerPID = 0
}

// memberEndedLocked counts a session that has ended out of its job.
func (d *Daemon) memberEndedLocked(s *session) {
	if j := d.jobByID[s.job]; j != nil {
		j.live--
		d.lookForLocked(j)
	}
}

// lookForLocked has it found out whether anything of a job lives, where that is in question.
func (d *Daemon) lookForLocked(j *job) {
	if j.closed || j.by.PID != 0 || j.live > 0 || d.stopping() {
		return
	}
	if len(d.left.jobs) == 0 {
		d.left.done = make(chan struct{})
	}
	d.left.jobs[j] = struct{}{}
	signal(d.left.wake)
}

// lookRest is how many times as long as it looked findLeft rests, and mostRest for how long at the most.
const (
	lookRest = 3
	mostRest = time.Second
)

// findLeft finds out what became of jobs whose runner has ended. It takes a quarter of the
// time at the most, however many there are, unless that takes very long.
func (d *Daemon) findLeft() <-chan time.Time {
	began := time.Now()
	d.lookForLeft()
	next := readEvery
	if d.nameLeft() > fewNames {
		next = nameEvery
	}
	d.rest(time.After(min(lookRest*time.Since(began), mostRest))) // of the processor's time, not of the daemon's clock
	return d.after(next)
}

// fewNames is of how many processes the names are looked at every second.
const fewNames = 64

// nameLeft looks again at the names of the processes that jobs live by, because a shell may have become another program. It
// returns how many there are.
func (d *Daemon) nameLeft() int {
	by := map[*job]procfacts.Started{}
	d.lock()
	for _, j := range d.jobs {
		if d.file.Jobs.At(j.index).Released == jobLeft && j.by.PID != 0 {
			by[j] = j.by.Started
		}
	}
	d.unlock()
	for j, p := range by {
		name := d.programAt(p)
		d.lock()
		if !j.closed && j.by.Started == p {
			d.arb.CommandEnded(j.id, name)
		}
		d.unlock()
	}
	return len(by)
}

// lookForLeft goes through the processes once for all the jobs in question.
func (d *Daemon) lookForLeft() {
	d.lock()
	jobs, done := d.left.jobs, d.left.done
	d.left.jobs = map[*job]struct{}{}
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
			pidfd, gone = d.stillThere(p)
			name = d.programAt(p)
		}
		d.settleLeft(j, p, pidfd, ok, gone, name)
	}
	close(done)
}

// programAt names a process: "ssh-agent[4711]".
func (d *Daemon) programAt(p procfacts.Started) string {
	f, _ := d.inv.Facts(p.PID) // without them it has its PID
	return wording.Process(f.Exe, f.Command, "", p.PID)
}

// tokenVariable is what a process of the job has in its environment.
func tokenVariable(j *job) string { return variableOfJob + j.token.Hex() }

// settleLeft lets a job live by the process that was found, with its name, or ends it if none was.
func (d *Daemon) settleLeft(j *job, p procfacts.Started, pidfd int, found, gone bool, name string) {
	d.lock()
	defer d.unlock()
	switch {
	case d.stopping(), j.closed, j.by.PID != 0, d.jobs[j.token] != j:
		closeFD(pidfd)
	case found && gone: // it may have left something behind in turn
		d.lookForLocked(j)
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

// othersEnded waits until it is known of the jobs whose runners have ended whether they have
// ended too: a request that is not to wait is not refused for what nobody has any more.
func (cl *client) othersEnded() {
	d := cl.d
	cl.turn.Out(func() {
		d.reaper.Sync()
		d.lock()
		done := d.left.done
		d.unlock()
		select {
		case <-done:
		case <-d.after(settlePatience):
		case <-d.ctx.Done():
		}
	})
}
