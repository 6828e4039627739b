package main

// This file has `gpuarb suspend` and `gpuarb resume`, by which a user asks jobs to give their GPU memory back and to take it again.

import (
	"context"
	"errors"
	"math"
	"strconv"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/spf13/cobra"
)

// suspendCommand returns the command `gpuarb suspend`.
func (a *app) suspendCommand() *cobra.Command {
	return a.residenceCommand(&cobra.Command{
		Use:   "suspend JOB…",
		Short: "ask jobs to give their GPU memory back",
		Long: `Asks jobs to give their GPU memory back, as evict.how of their rule says: by a hook, or by stopping their unit.
JOB is a number or a name, as gpuarb jobs shows it. Your own jobs, or as root anybody's. The command does not wait: gpuarb jobs and
gpuarb events show what becomes of it. The jobs return with gpuarb resume, or by themselves (evict.return).`,
	}, false)
}

// resumeCommand returns the command `gpuarb resume`.
func (a *app) resumeCommand() *cobra.Command {
	return a.residenceCommand(&cobra.Command{
		Use:   "resume JOB…",
		Short: "let suspended jobs take their GPU memory again",
		Long: `Lets suspended jobs take their GPU memory again. Each waits in the queue until everything that it held fits. The
command does not wait: gpuarb queue shows the place. A job that is stuck, because it failed to take its memory, is
asked once more. Your own jobs, or as root anybody's.`,
	}, true)
}

// residenceCommand adds to a command what `gpuarb suspend` and `gpuarb resume` have in common: their arguments, completion and action.
func (a *app) residenceCommand(command *cobra.Command, resume bool) *cobra.Command {
	command.Args = argumentCount(1, math.MaxInt)
	command.ValidArgsFunction = a.fromState(offerJobs)
	command.RunE = func(_ *cobra.Command, args []string) error { return a.suspend(args, resume) }
	return command
}

// suspend asks the jobs of args. A failure does not keep it from asking the next job. It prints each failure except the last, and
// returns the last.
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

// suspendOne asks the job with the number or name arg.
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

// errSuspendsNone is the error for a daemon that is too old to know the request.
var errSuspendsNone = errors.New("the daemon is of a version that suspends no jobs: restart gpuarbd")

// explainSuspend converts the error of a request to suspend or resume a job to a message for the user.
func explainSuspend(client *ipc.Client, err error) error {
	if errors.Is(err, ipc.StatusUnknownType) {
		return errSuspendsNone
	}
	return explainCall(client.Path(), err)
}
