package daemon

// This file remembers the latest jobs that have ended. A program that still has the token of such a job gets an error
// that names the job. jobs.go adds the jobs.

import (
	"time"

	"github.com/gpuarb/gpuarb/ipc"
)

// rememberedJobs is the number of ended jobs that are remembered.
const rememberedJobs = 1024

// endedJobs is the set of the latest jobs that have ended. The daemon's lock guards it.
type endedJobs struct {
	of     map[ipc.Token]endedJob
	tokens []ipc.Token // in the order in which the jobs ended
}

type endedJob struct {
	name  string
	claim bool      // the job was a claim
	at    time.Time // time of the end
}

// remember adds a job that has ended. If there are rememberedJobs already, it replaces the oldest.
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

// noJob returns the error for a program that names a job which no longer accepts programs.
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
