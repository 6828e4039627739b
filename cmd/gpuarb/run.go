package main

// This file has `gpuarb run`: it opens a job, starts the program in it, and waits for the program.
// jobrequest.go reads the flags, openjob.go opens the job, enclosingjob.go runs a program in a job
// that exists already. supervise.go and exec.go start the program.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/wording"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/shim"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const runName = "run"

func (a *app) runCommand() *cobra.Command {
	var options jobOptions
	command := &cobra.Command{
		Use:   runName + " [flags] [--] COMMAND [ARGUMENT…]",
		Short: "run a program, and all that it starts, under one budget",
		Long: `Runs COMMAND with its GPU memory and streams admitted by the daemon. Everything that
it starts shares one budget. What it reserves (--min) and its slot are taken before it
starts, which may wait: lines on stderr say for what. On a terminal each change has a line; elsewhere
only the first and the last state have one, and one a minute comes between. Beside what it reserves, the memory of one
context is kept on each device. Inside another
job it joins that job and shares its budget, slot and devices; --memory and --streams
then limit each of its programs further. Signals and
the exit status are passed through: the exit code is the command's own, 128+n when
signal n ended it (or the wait for it), 75 when it would have to wait and --no-wait is
given, 124 when the wait timed out, 125 when gpuarb itself failed, 126 when the command cannot
be executed and 127 when it is not found.

If requests waited or were refused, or with --summary, it ends with one line on stderr: the most
memory that was used, how long requests waited, and how many were refused. If a process of the job used a GPU without
the library (a start script that replaces LD_PRELOAD, a static program), a line says so as soon as a reading of the
device shows it, within a few seconds, and another one at the end; a process that ended within a second may be missed.

The program starts as if env had started it: with the signal dispositions, the signal mask, the descriptors and the
limits that gpuarb was started with. With --exec it also takes gpuarb's place and its PID, as with env. Then no gpuarb
is left to cancel a wait for memory when a signal comes, or to print a line at the end: that line is in the daemon's log,
and gpuarb events --kind ended shows it. systemd knows a service by its PID, so --exec is the default when
LISTEN_PID, WATCHDOG_PID or NOTIFY_SOCKET is set; with --exec=false such a unit needs NotifyAccess=all.

A program crashes under the usual build of gpuarb's library if a library of its own has variables named like driver
functions, as Blender's cuew. --no-exports gives the program the build that exports no driver functions, and so does
no_exports = true in its rule. Driver functions that the program is linked with, and does not look up, are then not held
to limits.

With --wait an allocator that keeps freed memory until it is refused some (PyTorch's, CuPy's, numba's) would wait with
a full cache. So the first request of a burst is refused at once, and the next one waits; a burst ends when the thread
is granted memory on that device. That is the default for programs that have loaded such an allocator, unless wait_after
in the rule says otherwise. --refuse-first does so for every program of the job, and --refuse-first=false for none.

With --die-with-parent the program gets SIGTERM when the process that started gpuarb ends, and SIGKILL
10 s later; with --exec, SIGTERM alone, when the thread ends that started gpuarb.

A device is an index, UUID, beginning of a UUID or PCI address. Sizes: 4G, 4GiB, 4096M,
bytes, 25% (of each device), max. K, M and G are binary.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("no program to run was given: gpuarb run [flags] -- COMMAND")
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			return runFailure(a.runProgram(command.Flags(), &options, args))
		},
	}
	flags := command.Flags()
	flags.SetInterspersed(false) // arguments after COMMAND belong to the command
	options.addTo(flags)
	flags.StringVar(&options.name, "name", "", "what the job is called in tables, messages and logs, and where commands take its number")
	flags.BoolVar(&options.summary, "summary", false, "end with a line on stderr: most memory used, time waited, requests refused; =false: never")
	flags.BoolVar(&options.exec, execFlag, false, "become the program, under this PID; the default where LISTEN_PID, WATCHDOG_PID or NOTIFY_SOCKET is set")
	flags.BoolVar(&options.dieWithParent, dieWithParentFlag, false, "end the program when the process that started gpuarb ends")
	flags.BoolVar(&options.perProcess, "per-process", false, "the budget is each process's own")
	flags.BoolVar(&options.noExports, noExportsFlag, false, "the library without exported driver functions (see above); =false: the usual one, whatever the rule says")
	flags.BoolVar(&options.firstRefused, refuseFirstFlag, false, "refuse the first request of a burst if it would wait, so that caches are dropped (see above); =false: never")
	flags.BoolVar(&options.noWait, "no-wait", false, "fail with 75 rather than wait")
	flags.StringVar(&options.device, "device", "", "the devices to use, as 0 or 0,1; or emptiest: the one with the most free memory; any, nvidia, amd, intel: one that is free, or wait for it; cpu is the processor, for OpenCL and Vulkan")
	a.completeDevices(command)
	return command
}

// runFailure gives failures of gpuarb itself the exit code that differs from usual codes of
// programs.
func runFailure(err error) error {
	if err == nil {
		return nil
	}
	exit := withCode(err, exitRunFailed)
	if exit.code < exitTimeout && exit.code != exitBusy && exit.err != nil {
		return &exitError{exitRunFailed, err}
	}
	return exit
}

// runProgram opens a job, starts the program in it, and waits for the program.
func (a *app) runProgram(flags *pflag.FlagSet, options *jobOptions, args []string) error {
	program, err := lookUp(args[0], os.Getenv("PATH"))
	if err != nil {
		program = args[0] // reported later, because faults in the flags come first
	}
	if err := a.checkEnvironment(); err != nil {
		return err
	}
	if err := a.setMemory(options, args); err != nil {
		return err
	}
	if around, inside := a.enclosingJob(); inside {
		return a.runInJob(around, flags, options, program, args, err)
	}
	request, size, wrong := options.request(flags)
	if wrong != nil {
		return wrong
	}
	library, wrong := a.libraryFor(options.noExports)
	if wrong != nil {
		return wrong
	}
	if err != nil {
		return err
	}
	if flags.Changed("name") {
		if wrong := ipc.CheckName(options.name); wrong != nil {
			return fmt.Errorf("--name %q: %w; a name has up to %d printable characters, none of them a slash, and is no number", options.name, wrong, ipc.MaxName)
		}
	}
	request.Command = ipc.MakeCommand(strings.Join(args, " "), options.name)
	who := wording.Caller(options.name, strings.Join(args, " "), os.Getpid())
	client, err := a.prepare(&request, options, size)
	if err != nil {
		return err
	}
	defer client.Close()
	caught, stop, err := options.catchSignals()
	if err != nil {
		return err
	}
	defer stop()
	job, err := a.openJob(client.Path(), who, request, caught)
	if err != nil {
		return jobRefused(who, err)
	}
	switch {
	case options.asVisible && job.Devices == request.Devices:
		job.Devices = 0 // the program sees these devices anyway: its environment stays as it is
	case options.min != "" && options.device == "" && options.prefer == "" && job.Devices > 0:
		a.say("%s: --min %s fits GPU %s alone: the program is given no other", who, options.min, indices(job))
	}
	if flags.Changed(noExportsFlag) {
		job.Text = ipc.Text{} // the command line decides, instead of the rule
	}
	launch, err := launchOf(library, client.Path(), job)
	if err != nil {
		return err
	}
	launch.Wishes = options.wishes(flags)
	if options.usesExec(flags) {
		return a.execProgram(program, args, launch.Environ(os.Environ()), options.dieWithParent)
	}
	cancel := func() { a.cancelTickets(client.Path(), job.Job) }
	stopWatching := a.watchJob(client.Path(), who, job.Job)
	err = a.supervise(program, args, launch.Environ(os.Environ()), caught, cancel)
	stopWatching()
	reportExit(client.Path(), job.Job, err)
	a.summarize(client.Path(), who, job.Job, options.summaryMode(flags))
	return err
}

// summaryMode returns whether the flags ask for a summary at the end.
func (o *jobOptions) summaryMode(flags *pflag.FlagSet) summaryMode {
	switch {
	case o.summary:
		return summaryAlways
	case flags.Changed("summary"):
		return summaryNever
	}
	return summaryIfNeeded
}

// jobRefused adds to a refusal the name of the job, because several runs may write into the same
// log. If the text of the daemon does not say that the job was refused, jobRefused adds that too.
func jobRefused(who string, err error) error {
	exit := withCode(err, exitFailed)
	reason := exit.err
	switch {
	case reason == nil:
		return exit
	case exit.code == exitFailed:
		reason = fmt.Errorf("the job was refused: %w", reason)
	}
	return &exitError{exit.code, fmt.Errorf("%s: %w", who, reason)}
}

// prepare connects to the daemon, and adds devices to the request.
func (a *app) prepare(request *ipc.JobOpenRequest, options *jobOptions, size accounting.Size) (*ipc.Client, error) {
	ctx, cancel := context.WithTimeout(context.Background(), daemonTimeout)
	defer cancel()
	defer a.slow(theDaemon)()
	client, err := a.connect(ctx)
	if err != nil || !options.needsDevices(size) {
		return client, err
	}
	snapshot, err := snapshotOf(ctx, client)
	if err == nil {
		err = a.choose(request, options, size, snapshot.Devices)
	}
	if err == nil && request.Flags&ipc.JobEmptiest != 0 && !client.Able(ipc.AbleEmptiest) {
		err = fail(exitUnavailable, "--device emptiest: the daemon is of a version that does not know it; restart gpuarbd, or name a device")
	}
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	return client, nil
}

// launchOf returns how programs of a job start. They get library, unless the rule of the job
// chooses the build without exports.
func launchOf(library, path string, job ipc.JobOpenReply) (shim.Launch, error) {
	if job.Text.String() == ipc.BuildNoExports {
		var err error
		if library, err = shim.WithoutExports(library); err != nil {
			return shim.Launch{}, fmt.Errorf("no_exports in the rule of this job: %w", err)
		}
	}
	socket, err := filepath.Abs(path)
	return shim.Launch{Library: library, Socket: socket, Job: job.Job, Devices: job.Device[:job.Devices]}, err
}
