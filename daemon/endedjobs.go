package daemon

// This file remembers the latest jobs that have ended, to say what became of a job to a program that still has its token. jobs.go
// enters them.

import (
	"time"

	"github.com/gpuarb/gpuarb/ipc"
)

// rememberedJobs is how many jobs that have ended are remembered.
const rememberedJobs = 1024

// endedJobs are the latest jobs that have ended. The daemon's lock guards them.
type endedJobs struct {
	of     map[ipc.Token]endedJob
	tokens []ipc.Token // in the order that they ended in
}

type endedJob struct {
	name  string
	claim bool      // it was a claim
	at    time.Time // when it ended
}

// remember enters a job that has ended, in the place of the oldest one if there are rememberedJobs.
func (e *endedJobs) remember(token ipc.Token, j endedJob) {
	if e.of == nil {
		e.of = map[ipc.Token]endedJob{}
	}
	if len(e.tokens) == rememberedJobs {
		delete(e.of, e.tokens[0])
		e.tokens = e.tokens[1:]
	}
	e.tokens = append(e.tokens, token)
	e.of[token] = j
}

// noJob returns the error that tells a program why the job that it names takes it in no more.
func (e *endedJobs) noJob(token ipc.Token, now time.Time) error {
	ended, ok := e.of[token]
	since := now.Sub(ended.at).Round(time.Second)
	switch {
	case !ok:
		return refused(ipc.StatusNoSession, "GPUARB_JOB names no job that the daemon knows: it has ended, or was another daemon's; "+
			"start the program through `gpuarb run`, or without that variable")
	case ended.claim:
		return refused(ipc.StatusPermission, "GPUARB_JOB names %s, a claim that was given back %v ago; "+
			"`eval \"$(gpuarb claim --release)\"` takes its variables out of this shell", ended.name, since)
	}
	return refused(ipc.StatusPermission, "GPUARB_JOB names %s, which ended %v ago; "+
		"start the program through a `gpuarb run` of its own, or without that variable", ended.name, since)
}
