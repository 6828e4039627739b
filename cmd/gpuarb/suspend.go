package main

// This file has `gpuarb suspend` and `gpuarb resume`, by which a person asks jobs to give their memory back and to take it again.

import (
	"context"
	"errors"
	"math"
	"strconv"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/spf13/cobra"
)

// suspendCommand returns `gpuarb suspend`.
func (a *app) suspendCommand() *cobra.Command {
	return a.residenceCommand(&cobra.Command{
		Use:   "suspend JOB…",
		Short: "ask jobs to give their GPU memory back",
		Long: `Asks jobs to give their GPU memory back, as evict.how of their rule says: by a hook, or by stopping their unit.
JOB is a number or a name, as gpuarb jobs shows it. Your own jobs, or as root anybody's. The command does not wait: gpuarb jobs and
gpuarb events show what becomes of it. The jobs return with gpuarb resume, or by themselves (evict.return).`,
	}, false)
}

// resumeCommand returns `gpuarb resume`.
func (a *app) resumeCommand() *cobra.Command {
	return a.residenceCommand(&cobra.Command{
		Use:   "resume JOB…",
		Short: "let suspended jobs take their GPU memory again",
		Long: `Lets suspended jobs take their GPU memory again. Each waits in the queue until everything that it held fits. The
command does not wait: gpuarb queue shows the place. A job that is stuck, because it failed to take its memory, is
asked once more. Your own jobs, or as root anybody's.`,
	}, true)
}

// residenceCommand adds arguments and action to a command that suspends jobs, or resumes them.
func (a *app) residenceCommand(command *cobra.Command, resume bool) *cobra.Command {
	command.Args = argumentCount(1, math.MaxInt)
	command.ValidArgsFunction = a.fromState(offerJobs)
	command.RunE = func(_ *cobra.Command, args []string) error { return a.suspend(args, resume) }
	return command
}

// suspend asks all jobs that it can. It fails if one of them could not be asked.
func (a *app) suspend(args []string, resume bool) error {
	return a.ask(func(ctx context.Context, client *ipc.Client) (failed error) {
		for _, arg := range args {
			err := a.suspendOne(ctx, client, arg, resume)
			if err != nil && failed != nil {
				a.say("%v", failed)
			}
			if err != nil {
				failed = err
			}
		}
		return failed
	})
}

// suspendOne asks one job, by its number or its name.
func (a *app) suspendOne(ctx context.Context, client *ipc.Client, arg string, resume bool) error {
	id, err := strconv.ParseUint(arg, 10, 63)
	if err != nil {
		state, err := snapshotOf(ctx, client)
		if err != nil {
			return err
		}
		if id, err = jobCalled(state, arg); err != nil {
			return err
		}
	}
	err = explainSuspend(client, client.Suspend(ctx, id, resume))
	switch {
	case errors.Is(err, errSuspendsNone):
		return &exitError{exitUnavailable, err}
	case err != nil:
		return &exitError{exitFailed, err}
	}
	return nil
}

// errSuspendsNone is the error of a daemon that does not know the request.
var errSuspendsNone = errors.New("the daemon is of a version that suspends no jobs: restart gpuarbd")

// explainSuspend returns the error of a request to suspend or resume a job, for users.
func explainSuspend(client *ipc.Client, err error) error {
	if errors.Is(err, ipc.StatusUnknownType) {
		return errSuspendsNone
	}
	return explainCall(client.Path(), err)
}
