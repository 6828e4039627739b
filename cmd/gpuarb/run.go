package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/config"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/report"
	"github.com/gpuarb/gpuarb/shim"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const runName = "run"

// runOptions is what was asked for on the command line of run.
type runOptions struct {
	memory     string
	streams    int
	perProcess bool
	device     string
}

// laterRunFlags are flags of run that are announced and not there yet.
var laterRunFlags = []string{"min", "exclusive", "wait", "no-wait"}

func (a *app) runCommand() *cobra.Command {
	var options runOptions
	command := &cobra.Command{
		Use:   runName + " [flags] [--] COMMAND [ARGUMENT…]",
		Short: "run a program, and all that it starts, under one budget",
		Long: `Runs COMMAND with its GPU memory and streams admitted by the daemon. Everything that
it starts shares one budget. Signals and the exit status are passed through: the exit
code is the command's own, 128+n when signal n ended it, 125 when gpuarb itself failed,
126 when the command cannot be executed and 127 when it is not found.

Sizes: 4G, 4GiB, 4096M, bytes, 25% (of each device), max. K, M and G are binary.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("no program to run was given: gpuarb run [flags] -- COMMAND")
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			if err := laterFlag(command.Flags()); err != nil {
				return runFailure(err)
			}
			return runFailure(a.runProgram(command.Flags(), options, args))
		},
	}
	flags := command.Flags()
	flags.SetInterspersed(false) // what follows COMMAND is the command's
	flags.StringVar(&options.memory, "memory", "", "the budget on each device; never more than the rules give")
	flags.IntVar(&options.streams, "streams", 0, "the most streams of each process on each device")
	flags.BoolVar(&options.perProcess, "per-process", false, "the budget is each process's own")
	flags.StringVar(&options.device, "device", "", "the one device to use: index, UUID, beginning of a UUID, or PCI address")
	for _, name := range laterRunFlags {
		flags.String(name, "", "not supported yet")
		flags.Lookup(name).NoOptDefVal = "yes"
		if err := flags.MarkHidden(name); err != nil {
			panic(err) // the flag was defined above
		}
	}
	return command
}

// laterFlag refuses a flag of a later version: to ignore it would run a program
// under other conditions than its user thinks.
func laterFlag(flags *pflag.FlagSet) error {
	for _, name := range laterRunFlags {
		if flags.Changed(name) {
			return notYet("run --" + name)
		}
	}
	if device := flags.Lookup("device"); device.Value.String() == "any" {
		return notYet("run --device any")
	}
	return nil
}

// runFailure gives every failure of gpuarb itself the code that tells it from the
// program's own.
func runFailure(err error) error {
	var exit *exitError
	if errors.As(err, &exit) && (exit.code >= exitRunFailed || exit.err == nil) {
		return err
	}
	if err != nil {
		return &exitError{exitRunFailed, err}
	}
	return nil
}

// runProgram opens a job, starts the program in it, and waits for it.
func (a *app) runProgram(flags *pflag.FlagSet, options runOptions, args []string) error {
	request, size, err := jobRequest(flags, options, args)
	if err != nil {
		return err
	}
	library, err := shim.FindLibrary(a.executable, a.getenv)
	if err != nil {
		return fmt.Errorf("%w; install gpuarb, or name the library with GPUARB_LIB", err)
	}
	program, err := lookUp(args[0], a.getenv("PATH"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close() // the job lives as long as the connection
	launch := shim.Launch{Library: library}
	if launch.Socket, err = filepath.Abs(client.Path()); err != nil {
		return err
	}
	if launch.Device, err = chooseDevice(ctx, client, options.device, size); err != nil {
		return err
	}
	job, err := client.OpenJob(ctx, request)
	if err != nil {
		return fmt.Errorf("the job was refused: %w", explainCall(client, err))
	}
	launch.Job = job.Job
	return a.supervise(program, args, launch.Environ(a.environ))
}

// jobRequest turns the flags into a request, and returns the budget apart.
func jobRequest(flags *pflag.FlagSet, options runOptions, args []string) (ipc.JobOpenRequest, arbiter.Size, error) {
	request := ipc.JobOpenRequest{Memory: ipc.NoLimit, Command: ipc.MakeText(strings.Join(args, " "))}
	size := arbiter.Size{Max: true}
	if flags.Changed("memory") {
		var err error
		if size, err = config.ParseSize(options.memory); err != nil {
			return request, size, fmt.Errorf("--memory: %w", err)
		}
		if size == (arbiter.Size{}) {
			return request, size, errors.New("--memory: a program without any device memory needs no GPU; write more than 0")
		}
	}
	switch {
	case size.Max:
	case size.PerMille != 0:
		request.MemoryShare = size.PerMille
	default:
		request.Memory = uint64(size.Bytes)
	}
	if flags.Changed("streams") && (options.streams < 1 || options.streams > math.MaxInt32) {
		return request, size, fmt.Errorf("--streams: %d is no limit; write a number from 1", options.streams)
	}
	request.Streams = uint32(options.streams)
	if options.perProcess {
		request.Flags |= ipc.JobPerProcess
	}
	return request, size, nil
}

// chooseDevice returns what CUDA_VISIBLE_DEVICES must be for the device that was
// named, "" when none was. A budget larger than the device, or than every device, is
// refused: it would be no budget.
func chooseDevice(ctx context.Context, client *ipc.Client, name string, size arbiter.Size) (string, error) {
	if name == "" && (size.Max || size.PerMille != 0) {
		return "", nil
	}
	snapshot, err := snapshotOf(ctx, client)
	if err != nil {
		return "", err
	}
	if name == "" {
		return "", checkBudget(snapshot.Devices, size)
	}
	device, err := findDevice(snapshot.Devices, name)
	if err != nil {
		return "", fmt.Errorf("--device: %w", err)
	}
	if device.Lost {
		return "", fmt.Errorf("--device: %s is lost: it fell off the bus", listDevices([]accounting.DeviceState{device}))
	}
	if device.Vendor != "nvidia" {
		return "", notYet(fmt.Sprintf("--device %s: choosing a device of %s", name, device.Vendor))
	}
	return device.UUID, checkBudget([]accounting.DeviceState{device}, size)
}

// checkBudget refuses an absolute budget that no device could ever give.
func checkBudget(devices []accounting.DeviceState, size arbiter.Size) error {
	if len(devices) == 0 || size.Max || size.PerMille != 0 {
		return nil
	}
	largest := devices[0]
	for _, device := range devices[1:] {
		if device.Total > largest.Total {
			largest = device
		}
	}
	if size.Bytes <= largest.Total {
		return nil
	}
	which := ""
	if len(devices) > 1 {
		which = ", the largest here,"
	}
	return fmt.Errorf("--memory: %s is more than device %d (%s)%s has: %s; ask for less, or for a share such as 50%%",
		config.FormatSize(size), largest.Index, largest.Name, which, report.Size(largest.Total))
}
