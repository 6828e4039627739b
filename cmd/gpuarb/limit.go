package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/config"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/report"
	"github.com/spf13/cobra"
)

func (a *app) limitCommand() *cobra.Command {
	var device string
	var job uint64
	command := &cobra.Command{
		Use:   "limit {PID | --job ID | --device N} [LIMIT=VALUE…]",
		Short: "show limits and what set them, or change them while programs run",
		Long: `Changes limits of a process or a job (memory.max, memory.min, streams.max; with
--device on that device alone), or of a device (slots.max). Your own you may lower, and
raise again up to what the rules of the configuration, or root, gave; root may do anything.
What is lowered below what is held takes nothing away: nothing new is granted until enough
was freed. The daemon logs each change (journalctl -u gpuarbd): who, whose, from what to what.

Without LIMIT=VALUE it shows the limits in force, and which rule, flag or user set each.

Sizes: 4G, 4GiB, 4096M, bytes, 25% (of each device), max. K, M and G are binary.`,
		Example: "  gpuarb limit 4242\n  gpuarb limit 4242 memory.max=2G\n  gpuarb limit --device 0 slots.max=1",
		Args:    cobra.ArbitraryArgs,
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
	return a.jsonFlag(command)
}

// limitRequest reads whose limits change, and how. The device comes later.
func limitRequest(args []string, job uint64, ofJob, onDevice bool) (ipc.LimitRequest, error) {
	request := ipc.LimitRequest{Target: ipc.LimitDevice, Device: ipc.AllDevices}
	switch {
	case ofJob:
		request.Target, request.ID = ipc.LimitJob, job
	case len(args) == 0 && onDevice:
	case len(args) == 0:
		return request, fmt.Errorf("whose? Give a PID, --job or --device")
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
	if request.Set == 0 {
		return a.showLimits(ctx, client, request)
	}
	if err := client.SetLimit(ctx, request); err != nil {
		return &exitError{exitFailed, explainCall(client, err)}
	}
	if request.Set&ipc.SetMax != 0 {
		a.sayOver(ctx, client, request)
	}
	return nil
}

// limitsOf are the limits in force for whom a request names.
func limitsOf(s accounting.Snapshot, request ipc.LimitRequest) ([]report.Limit, error) {
	limits, ok := []report.Limit(nil), true
	unknown := fmt.Errorf("process %d is no client of this daemon (any more); `gpuarb ps` lists those that hold something", request.ID)
	switch request.Target {
	case ipc.LimitDevice:
		limits = report.DeviceLimits(s, int(request.Device))
	case ipc.LimitJob:
		limits, ok = report.JobLimits(s, request.ID)
		unknown = fmt.Errorf("there is no job %d (any more); /gpu/jobs lists them", request.ID)
	default:
		limits, ok = report.ProcessLimits(s, int(request.ID))
	}
	if !ok {
		return nil, &exitError{exitFailed, unknown}
	}
	return slices.DeleteFunc(limits, func(l report.Limit) bool {
		return request.Device != ipc.AllDevices && uint32(l.Device) != request.Device
	}), nil
}

// showLimits prints the limits in force, and what set them.
func (a *app) showLimits(ctx context.Context, client *ipc.Client, request ipc.LimitRequest) error {
	snapshot, err := snapshotOf(ctx, client)
	if err != nil {
		return err
	}
	limits, err := limitsOf(snapshot, request)
	switch {
	case err != nil:
		return err
	case a.json:
		return a.printJSON(limits)
	}
	width := a.width()
	return report.Style{Width: width, Human: width > 0}.Limits(a.stdout, limits)
}

// sayOver says where more is held than a limit allows that was just set.
func (a *app) sayOver(ctx context.Context, client *ipc.Client, request ipc.LimitRequest) {
	snapshot, err := snapshotOf(ctx, client)
	if err != nil {
		return // the change is made all the same
	}
	limits, err := limitsOf(snapshot, request)
	if err != nil {
		return
	}
	who := fmt.Sprintf("process %d", request.ID)
	if request.Target == ipc.LimitJob {
		who = fmt.Sprintf("job %d", request.ID)
	}
	for _, l := range limits {
		if l.Name == "memory.max" && l.Value != nil && l.Held > *l.Value {
			held := accounting.Bytes(l.Held)
			a.say("%s holds %s on GPU %d: over until it frees %s", who, held.Human(), l.Device, held.Less(accounting.Bytes(*l.Value)).Human())
		}
	}
}
