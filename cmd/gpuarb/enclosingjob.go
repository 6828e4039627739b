package main

// This file runs `gpuarb run` inside a job that exists already: the job of another `gpuarb run`, or
// of the claim of the shell. run.go has a run with a job of its own.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/shim"
	"github.com/spf13/pflag"
)

// retryPause is the time before a daemon that restarts is asked again.
const retryPause = 20 * time.Millisecond

// enclosingJob returns the job that this process is in, and the socket of its daemon. The job is
// that of another `gpuarb run` or of the claim of the shell. inside is false if no such job exists
// now.
func (a *app) enclosingJob() (around shim.Launch, inside bool) {
	job, err := ipc.ParseToken(os.Getenv("GPUARB_JOB"))
	if err != nil || job.IsZero() {
		return around, false
	}
	around = shim.Launch{Job: job, Socket: os.Getenv("GPUARB_SOCKET")}
	if a.ownClaim() != 0 {
		return around, true
	}
	ctx, cancel := context.WithTimeout(context.Background(), daemonTimeout)
	defer cancel()
	around.Socket, inside = a.askEnclosingJob(ctx, job)
	return around, inside
}

// askEnclosingJob asks the daemon whether it knows a job, and returns the socket that answered. A
// daemon that ends while it is asked is asked again after its restart. Without that, the process
// would open a job of its own, which waits for what the enclosing job holds.
func (a *app) askEnclosingJob(ctx context.Context, job ipc.Token) (socket string, known bool) {
	for ended := false; ; {
		client, err := ipc.DialAny(ctx, a.socketPaths())
		if err == nil {
			var hello ipc.HelloReply
			hello, err = client.Hello(ctx, ipc.HelloRequest{Memory: ipc.NoLimit, Job: job})
			socket = client.Path()
			_ = client.Close()
			ended = ended || ipc.IsEnd(err) || errors.Is(err, ipc.StatusShuttingDown)
			if err == nil && hello.InJob != 0 {
				socket, err = filepath.Abs(socket)
				return socket, err == nil
			}
		}
		if err == nil || !ended {
			return "", false // go on without an enclosing job: opening a job then says why no daemon answers
		}
		select {
		case <-ctx.Done():
			return "", false
		case <-time.After(retryPause):
		}
	}
}

// runInJob runs a program in the enclosing job. A job of its own would escape the budget of the
// enclosing job, and would wait for the slot and the reservation that the enclosing job holds.
func (a *app) runInJob(launch shim.Launch, flags *pflag.FlagSet, options *jobOptions, program string, args []string, notFound error) error {
	var err error
	if launch.Wishes, err = a.environmentInJob(flags, options); err != nil {
		return err
	}
	if launch.Library, err = a.libraryInJob(flags, options); err != nil {
		return err
	}
	if notFound != nil {
		return notFound
	}
	caught, stop, err := options.catchSignals()
	if err != nil {
		return err
	}
	defer stop()
	if options.usesExec(flags) {
		return a.execProgram(program, args, launch.Environ(os.Environ()), options.dieWithParent)
	}
	return a.supervise(program, args, launch.Environ(os.Environ()), caught, a.cancelDescendants)
}

// libraryInJob returns the build of the library that --no-exports chooses. Without that flag it
// returns the build that the programs of the job have.
func (a *app) libraryInJob(flags *pflag.FlagSet, options *jobOptions) (string, error) {
	if flags.Changed(noExportsFlag) {
		return a.libraryFor(options.noExports)
	}
	return a.libraryFor(shim.PreloadsNoExports(os.Getenv("LD_PRELOAD")))
}

// environmentInJob returns the flags that have an effect inside a job, as environment variables.
// They may lower the limits of an enclosing run, never raise them. Any other flag needs a job of
// its own, and is an error.
func (a *app) environmentInJob(flags *pflag.FlagSet, options *jobOptions) (wishes []string, err error) {
	_, size, err := options.request(flags)
	if err != nil {
		return nil, err
	}
	flags.Visit(func(f *pflag.Flag) {
		switch {
		case f.Name == "memory":
			if around, err := accounting.ParseSize(os.Getenv("GPUARB_MEMORY")); !size.Max && (err != nil || !size.MoreThan(around)) {
				wishes = append(wishes, "GPUARB_MEMORY="+size.WithUnit())
			}
		case f.Name == "streams":
			if around, err := strconv.Atoi(os.Getenv("GPUARB_STREAMS")); err != nil || options.streams < around {
				wishes = append(wishes, "GPUARB_STREAMS="+strconv.Itoa(options.streams))
			}
		case f.Name == waitFlag && options.wait.text == waitByRules:
			wishes = append(wishes, "GPUARB_ON_FULL=wait")
		case f.Name == "no-wait":
			wishes = append(wishes, "GPUARB_ON_FULL=deny")
		case f.Name == "socket", f.Name == "per-process", f.Name == execFlag, f.Name == noExportsFlag, f.Name == dieWithParentFlag, f.Name == refuseFirstFlag:
		case err == nil:
			err = a.errInsideJob(f.Name)
		}
	})
	return append(wishes, options.wishes(flags)...), err
}

// errInsideJob says why a flag has no effect inside a job, and what to do.
func (a *app) errInsideJob(flag string) error {
	if claim := a.ownClaim(); claim != 0 {
		return fmt.Errorf("--%s: this shell has claim %d, in which the program would run; give the flag to `gpuarb claim`, "+
			"or end the claim first: eval \"$(gpuarb claim --release)\"", flag, claim)
	}
	return fmt.Errorf("--%s: this is inside the job of another `gpuarb run`, whose budget, slot and devices the program would share; "+
		"give the flag to that one, or leave its job: env -u GPUARB_JOB gpuarb run …", flag)
}

// cancelDescendants cancels the waiting requests of the descendants of this process. Requests of
// other processes of the job keep their places, because this process did not start them.
func (a *app) cancelDescendants() {
	ctx, cancel := context.WithTimeout(context.Background(), cancelTimeout)
	defer cancel()
	client, err := a.connect(ctx)
	if err != nil {
		return
	}
	defer client.Close()
	_, _ = client.Cancel(ctx, ipc.CancelRequest{})
}
