package daemon

import (
	"time"

	"github.com/gpuarb/gpuarb/ipc"
)

// rememberedJobs is how many jobs that have ended are remembered, to say what became of them
// to a program that still has their token.
const rememberedJobs = 1024

// endedJobs are the latest jobs that have ended.
type endedJobs struct {
	of     map[ipc.Token]endedJob
	tokens []ipc.Token // in the order that they ended in
}

type endedJob struct {
	name  string
	claim bool
	at    time.Time
}

// rememberEndedLocked notes that a job has ended that programs were told of.
func (d *Daemon) rememberEndedLocked(j *job) {
	if !j.open {
		return
	}
	if d.endedJobs.of == nil {
		d.endedJobs.of = map[ipc.Token]endedJob{}
	}
	if len(d.endedJobs.tokens) == rememberedJobs {
		delete(d.endedJobs.of, d.endedJobs.tokens[0])
		d.endedJobs.tokens = d.endedJobs.tokens[1:]
	}
	d.endedJobs.tokens = append(d.endedJobs.tokens, j.token)
	d.endedJobs.of[j.token] = endedJob{name: d.arb.JobName(j.id), claim: d.file.Jobs.At(j.index).Flags&ipc.JobClaim != 0, at: d.now()}
}

// noJobLocked says why a program that names a job is in none.
func (d *Daemon) noJobLocked(token ipc.Token) error {
	ended, ok := d.endedJobs.of[token]
	switch {
	case !ok:
		return refused(ipc.StatusNoSession, "GPUARB_JOB names no job that the daemon knows: it has ended, or was another daemon's; "+
			"start the program through `gpuarb run`, or without that variable")
	case ended.claim:
		return refused(ipc.StatusPermission, "GPUARB_JOB names %s, a claim that was given back %v ago; "+
			"`eval \"$(gpuarb claim --release)\"` takes its variables out of this shell", ended.name, d.since(ended.at))
	}
	return refused(ipc.StatusPermission, "GPUARB_JOB names %s, which ended %v ago; "+
		"start the program through a `gpuarb run` of its own, or without that variable", ended.name, d.since(ended.at))
}

// since is how long ago something was, for people.
func (d *Daemon) since(at time.Time) time.Duration { return d.now().Sub(at).Round(time.Second) }
