package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/gpuarb/gpuarb/config"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/spf13/cobra"
)

func (a *app) limitCommand() *cobra.Command {
	var device string
	var job uint64
	command := &cobra.Command{
		Use:   "limit {PID | --job ID | --device N} LIMIT=VALUE…",
		Short: "change limits while programs run",
		Long: `Changes limits of a process or a job (memory.max, memory.min, streams.max; with
--device on that device alone), or of a device (slots.max). Your own you may lower; root
may do anything. What is lowered below what is held takes nothing away: nothing new is
granted until enough was freed.

Sizes: 4G, 4GiB, 4096M, bytes, 25% (of each device), max. K, M and G are binary.`,
		Example: "  gpuarb limit 4242 memory.max=2G\n  gpuarb limit --device 0 slots.max=1",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			request, err := limitRequest(args, job, command.Flags().Changed("job"), device != "")
			if err != nil {
				return &exitError{exitUsage, err}
			}
			return a.limit(request, device)
		},
	}
	command.Flags().StringVar(&device, "device", "", "the device: index, UUID, beginning of a UUID, or PCI address")
	command.Flags().Uint64Var(&job, "job", 0, "the job, by the number that /gpu/jobs shows")
	a.completeDevices(command)
	return command
}

// limitRequest reads whose limits change, and how. The device comes later.
func limitRequest(args []string, job uint64, ofJob, onDevice bool) (ipc.LimitRequest, error) {
	request := ipc.LimitRequest{Target: ipc.LimitDevice, Device: ipc.AllDevices}
	switch {
	case ofJob:
		request.Target, request.ID = ipc.LimitJob, job
	case !strings.Contains(args[0], "="):
		pid, err := strconv.ParseUint(args[0], 10, 31)
		if err != nil || pid == 0 {
			return request, fmt.Errorf("%q is no PID and no LIMIT=VALUE", args[0])
		}
		request.Target, request.ID = ipc.LimitProcess, pid
		args = args[1:]
	case !onDevice:
		return request, fmt.Errorf("whose? Give a PID, --job or --device")
	}
	if len(args) == 0 {
		return request, fmt.Errorf("no limit was given; write memory.max=2G")
	}
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		if err := setLimit(&request, name, value); err != nil {
			return request, err
		}
	}
	return request, nil
}

func setLimit(request *ipc.LimitRequest, name, value string) error {
	var err error
	switch ofDevice := request.Target == ipc.LimitDevice; {
	case name == "slots.max" && ofDevice:
		request.Set |= ipc.SetSlots
		if value != "max" {
			request.Slots, err = parseCount(value)
		}
	case name == "streams.max" && !ofDevice:
		request.Set |= ipc.SetStreams
		request.Streams, err = parseCount(value)
	case name == "memory.max" && !ofDevice:
		request.Set |= ipc.SetMax
		request.Max, request.MaxShare, err = parseAmount(value)
	case name == "memory.min" && !ofDevice:
		request.Set |= ipc.SetMin
		request.Min, request.MinShare, err = parseAmount(value)
	case ofDevice:
		return fmt.Errorf("%q is no limit of a device; there is slots.max", name)
	default:
		return fmt.Errorf("%q is no limit of a process or job; there are memory.max, memory.min and streams.max", name)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func parseAmount(text string) (bytes uint64, share uint32, err error) {
	size, err := config.ParseSize(text)
	bytes, share = wireSize(size)
	return bytes, share, err
}

func parseCount(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is no number from 1 to %d", text, math.MaxInt32)
	}
	return uint32(n), nil
}

func (a *app) limit(request ipc.LimitRequest, device string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	if device != "" {
		snapshot, err := snapshotOf(ctx, client)
		if err != nil {
			return err
		}
		found, err := findDevice(snapshot.Devices, device)
		if err != nil {
			return fail(exitUnavailable, "--device: %w", err)
		}
		request.Device = uint32(found.Index)
	}
	if err := client.SetLimit(ctx, request); err != nil {
		return &exitError{exitFailed, explainCall(client, err)}
	}
	return nil
}
