package main

// This file has the commands of `gpuarb job`, which open, close and list jobs of cgroups. A container engine or a scheduler opens such a
// job before the first process of a container or of a batch job starts. The flags of the open are read in jobbinding.go. The state of a
// container, which an OCI hook gets, is read in joboci.go.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func (a *app) jobCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "job",
		Short: "open, close and list the jobs of cgroups, for engines and schedulers",
		Long: `A job of a cgroup holds all processes in the cgroup, and in the cgroups below it, to one budget, whatever
their environment says. An engine or a scheduler opens it before the first process starts.`,
		Args: cobra.ArbitraryArgs,
		RunE: wantsSubcommand,
	}
	command.AddCommand(a.jobOpenCommand(), a.jobCloseCommand(), a.jobListCommand())
	return command
}

func (a *app) jobOpenCommand() *cobra.Command {
	var o bindOptions
	command := &cobra.Command{
		Use:   "open {--cgroup PATH | --cgroup-of PID | --oci} --memory SIZE [--name NAME]",
		Short: "hold all processes of a cgroup to one budget",
		Long: `Opens the job of a cgroup that exists, and prints its number. Only root may open it. If the job is open already with
the same options, nothing changes. With --oci the command reads the state of a container on stdin, as a createRuntime hook gets it.

The exit code is 0, 1 when it failed, 2 for usage, 69 when there is no device or no daemon, 75 when there is no room
now, 124 when the wait timed out.`,
		Args: argumentCount(0, 0),
		RunE: func(command *cobra.Command, _ []string) error { return a.jobOpen(command.Flags(), &o) },
	}
	flags := command.Flags()
	flags.StringVar(&o.cgroup, "cgroup", "", "the cgroup: its path as in /proc/PID/cgroup, or its folder below /sys/fs/cgroup")
	flags.IntVar(&o.cgroupOf, "cgroup-of", 0, "the cgroup of the process with this PID")
	flags.BoolVar(&o.oci, "oci", false, "the cgroup of the container whose state is on stdin, with its memory and name from annotations")
	flags.StringVar(&o.memory, "memory", "", "the budget of all processes together on each device")
	flags.StringVar(&o.min, "min", "", "the part of the budget that is reserved on each device from now on")
	flags.IntVar(&o.streams, "streams", 0, "the most streams of each process on each device")
	flags.IntVar(&o.priority, "priority", 0, "added to the priority of its requests")
	flags.StringVar(&o.device, "device", "", "the only devices that it may use: index, UUID or PCI address, or a list of these")
	flags.StringVar(&o.contexts, "contexts", figures.ContextsOutside, "whether contexts count in the budget: inside or outside")
	flags.StringVar(&o.name, "name", "", "the name that is shown with everything of the job; without it the last part of the cgroup's path")
	flags.StringVar(&o.wait, waitFlag, "", "wait for the reservation, for as long as this: 10m, max; without it, fail with 75 if there is no room")
	flags.StringVar(&o.onLoss, "on-loss", figures.LossClosed, "what its running programs get if the daemon stops: closed (no more device memory) or open (no limit)")
	flags.StringSliceVar(&o.allow, "allow", nil, "what its programs may do besides using the budget: a list of claim, reserve (more than --min), exclusive, priority")
	flags.StringVar(&o.until, "until", figures.UntilGone, "when it closes by itself: gone (with the cgroup), idle=10m (no process for so long), closed (never)")
	return command
}

// jobOpen carries out `gpuarb job open`.
func (a *app) jobOpen(flags *pflag.FlagSet, o *bindOptions) error {
	b, err := o.binding(flags)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	silent := time.AfterFunc(daemonTimeout, cancel) // an open that may wait stops this timer at the first notice from the daemon
	defer silent.Stop()
	client, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	if b.Devices, err = o.devices(ctx, client); err != nil {
		return err
	}
	lines := newWaitReporter(a, b.Name)
	defer lines.stop()
	job, err := client.OpenBinding(ctx, b, func(n ipc.WaitingReply) {
		if b.Wait != 0 {
			silent.Stop()
		}
		lines.notice(n)
	})
	if err != nil {
		return a.explainBinding(client.Path(), lines.latest(), err)
	}
	lines.served(job)
	fmt.Fprintln(os.Stdout, job.ID)
	return nil
}

// explainBinding returns the error that tells the user why the job of a cgroup was not opened or closed, with its exit code. The argument
// said is the last notice that was shown during the wait; "": none.
func (a *app) explainBinding(path, said string, err error) error {
	if errors.Is(err, ipc.StatusUnknownType) {
		return fail(exitUnavailable, "the daemon is of a version that has no jobs of cgroups: restart gpuarbd")
	}
	return a.explainJob(path, said, err)
}

func (a *app) jobCloseCommand() *cobra.Command {
	var cgroup string
	var oci bool
	command := &cobra.Command{
		Use:   "close {NAME | ID | --cgroup PATH | --oci}",
		Short: "close the job of a cgroup, and print what it has used",
		Long: `Closes the job of a cgroup: its reservation is given back, and programs that start in the cgroup from now on are not
held to it. Programs that run keep what they use, within the budget. With --oci it reads the state of a container
on stdin, as a poststop hook gets it, and succeeds also if the container has no job.`,
		Args: argumentCount(0, 1),
		RunE: func(_ *cobra.Command, args []string) error { return a.jobClose(args, cgroup, oci) },
	}
	command.Flags().StringVar(&cgroup, "cgroup", "", "the job of this cgroup")
	command.Flags().BoolVar(&oci, "oci", false, "the job of the container whose state is on stdin")
	return command
}

// jobClose carries out `gpuarb job close`.
func (a *app) jobClose(args []string, cgroup string, oci bool) error {
	var request ipc.UnbindRequest
	switch {
	case len(args) == 1 && cgroup == "" && !oci:
		if id, err := strconv.ParseUint(args[0], 10, 63); err == nil {
			request.ID = id
		} else {
			request.Name = ipc.MakeName(ipc.BindingName(args[0]))
		}
	case len(args) == 0 && cgroup != "" && !oci:
		if request.Cgroup = ipc.MakeText(strings.TrimRight(cgroup, "/")); request.Cgroup == (ipc.Text{}) {
			return &exitError{exitUsage, errRootCgroup}
		}
	case len(args) == 0 && cgroup == "" && oci:
		state, err := readOCIState(os.Stdin)
		if err != nil {
			return fail(exitUsage, "--oci: %w", err)
		}
		request.Container = ipc.MakeName(ipc.BindingName(state.ID))
	default:
		return fail(exitUsage, "give one of NAME, ID, --cgroup PATH and --oci")
	}
	return a.ask(func(ctx context.Context, client *ipc.Client) error {
		account, err := client.CloseBinding(ctx, request)
		if oci && errors.Is(err, ipc.StatusNoSession) {
			return nil // the job closed by itself, or the container had no job
		}
		if err != nil {
			return a.explainBinding(client.Path(), "", err)
		}
		_, err = fmt.Fprintln(os.Stdout, report.Escape(account))
		return err
	})
}

func (a *app) jobListCommand() *cobra.Command {
	var style func() report.Style
	command := &cobra.Command{
		Use:   "list",
		Short: "show the jobs of cgroups, one line per job and GPU",
		Args:  argumentCount(0, 0),
		RunE: func(*cobra.Command, []string) error {
			s, err := a.snapshot()
			if err != nil {
				return err
			}
			rows := slices.DeleteFunc(s.Jobs, func(j figures.JobState) bool { return j.Bound == "" })
			if a.json {
				return report.BindingsJSON(os.Stdout, rows)
			}
			return style().Bindings(os.Stdout, rows)
		},
	}
	style = styleFlags(command)
	return a.jsonFlag(command)
}
