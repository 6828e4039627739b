package main

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

// askAgain is how long a daemon that is restarted is left alone.
const askAgain = 20 * time.Millisecond

// jobAround is the job that this process is in, of another `gpuarb run` or of its shell's
// claim, and its daemon's socket; false where there is none, or none any more.
func (a *app) jobAround() (around shim.Launch, inside bool) {
	job, err := ipc.ParseToken(os.Getenv("GPUARB_JOB"))
	if err != nil || job.IsZero() {
		return around, false
	}
	around = shim.Launch{Job: job, Socket: os.Getenv("GPUARB_SOCKET")}
	if a.ownClaim() != 0 {
		return around, true
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	around.Socket, inside = a.askAround(ctx, job)
	return around, inside
}

// askAround asks the daemon whether it knows a job, and says at which socket. A daemon
// that ends while it is asked is asked again when it is back: whoever took its end for a
// no would wait for what his own job has.
func (a *app) askAround(ctx context.Context, job ipc.Token) (socket string, known bool) {
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
			return "", false // as without a job: that says what to do
		}
		select {
		case <-ctx.Done():
			return "", false
		case <-time.After(askAgain):
		}
	}
}

// runInside runs a program in the job that is there already. A job of its own would pass
// that one's budget by, and would wait for the slot and the reservation that it has itself.
func (a *app) runInside(launch shim.Launch, flags *pflag.FlagSet, options *jobOptions, program string, args []string, notFound error) error {
	var err error
	if launch.Wishes, err = a.wishesInside(flags, options); err != nil {
		return err
	}
	if launch.Library, err = a.libraryInside(flags, options); err != nil {
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
	if options.becomes(flags) {
		return a.become(program, args, launch.Environ(os.Environ()), options.dieWithParent)
	}
	return a.supervise(program, args, launch.Environ(os.Environ()), caught, a.cancelBelow)
}

// libraryInside returns the build of the library that the command line chooses, else the one that the job's programs have.
func (a *app) libraryInside(flags *pflag.FlagSet, options *jobOptions) (string, error) {
	if flags.Changed(noExportsFlag) {
		return a.libraryFor(options.noExports)
	}
	return a.libraryFor(shim.PreloadsNoExports(os.Getenv("LD_PRELOAD")))
}

// wishesInside are the flags that a program can be given inside a job, as its environment
// spells them: less than what a run around this one wishes, never more. The others ask for
// what only a job has.
func (a *app) wishesInside(flags *pflag.FlagSet, options *jobOptions) (wishes []string, err error) {
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
		case f.Name == waitFlag && options.wait.text == patienceOfRules:
			wishes = append(wishes, "GPUARB_ON_FULL=wait")
		case f.Name == "no-wait":
			wishes = append(wishes, "GPUARB_ON_FULL=deny")
		case f.Name == "socket", f.Name == "per-process", f.Name == execFlag, f.Name == noExportsFlag, f.Name == dieWithParentFlag:
		case err == nil:
			err = a.notInside(f.Name)
		}
	})
	return wishes, err
}

// notInside says why a flag cannot be had inside a job, and what to do.
func (a *app) notInside(flag string) error {
	if claim := a.ownClaim(); claim != 0 {
		return fmt.Errorf("--%s: this shell has claim %d, in which the program would run; give the flag to `gpuarb claim`, "+
			"or end the claim first: eval \"$(gpuarb claim --release)\"", flag, claim)
	}
	return fmt.Errorf("--%s: this is inside the job of another `gpuarb run`, whose budget, slot and devices the program would share; "+
		"give the flag to that one, or leave its job: env -u GPUARB_JOB gpuarb run …", flag)
}

// cancelBelow takes the waiting requests of this process's descendants out of the queue:
// those of others in the same job are not its to end.
func (a *app) cancelBelow() {
	ctx, cancel := context.WithTimeout(context.Background(), cancelPatience)
	defer cancel()
	client, err := a.connect(ctx)
	if err != nil {
		return
	}
	defer client.Close()
	_, _ = client.Cancel(ctx, ipc.CancelRequest{})
}
