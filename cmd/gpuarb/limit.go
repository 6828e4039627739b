package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/report"
	"github.com/gpuarb/gpuarb/shim"
	"github.com/spf13/cobra"
)

func (a *app) limitCommand() *cobra.Command {
	var whose limited
	command := &cobra.Command{
		Use:   "limit {PID | --job ID | --job NAME | --user NAME | --cgroup PATH | --rule NAME | --device N} [LIMIT=VALUE…]",
		Short: "show limits and what set them, or change them while programs run",
		Long: `Changes limits of a process or a job (memory.max, memory.min, streams.max; with
--device on that device alone), of all programs of a user together (memory.max; streams.max
of each), of all programs in a cgroup and those below it together (memory.max; only root may),
of what a rule gives (memory.max, streams.max), or of a device (slots.max). Your own you may
lower, and raise again up to what the rules of the configuration, or root, gave; root may do
anything. A user's or a cgroup's limit stays until it is taken off (memory.max=max), also when
the daemon or the machine's programs are started again; a rule's, until the configuration is
read again (systemctl reload gpuarbd).
What is lowered below what is held takes nothing away: nothing new is granted until enough
was freed. The daemon logs each change (journalctl -u gpuarbd): who, whose, from what to what.

Without LIMIT=VALUE it shows the limits in force, and which rule, flag or user set each.

Sizes: 4G, 4GiB, 4096M, bytes, 25% (of each device), max. K, M and G are binary.`,
		Example: "  gpuarb limit 4242\n  gpuarb limit 4242 memory.max=2G\n  gpuarb limit --user ann memory.max=6G\n  gpuarb limit --cgroup /system.slice/llama.service memory.max=12G\n  gpuarb limit --device 0 slots.max=1",
		Args:    cobra.ArbitraryArgs,

		ValidArgsFunction: a.completeLimit,
		RunE: func(command *cobra.Command, args []string) error {
			whose.ofJob = command.Flags().Changed("job")
			request, err := limitRequest(args, whose)
			if err != nil {
				return &exitError{exitUsage, err}
			}
			return a.limit(request, whose)
		},
	}
	command.Flags().StringVar(&whose.device, "device", "", "the device: index, UUID, beginning of a UUID, or PCI address")
	command.Flags().StringVar(&whose.job, "job", "", "the job, by the number that /gpu/jobs shows, or by its name (gpuarb run --name)")
	command.Flags().StringVar(&whose.user, "user", "", "all programs of a user together, by name or number")
	command.Flags().StringVar(&whose.cgroup, "cgroup", "", "all programs in a cgroup, and in those below it, by its path in cgroup v2, as /proc/PID/cgroup has it")
	command.Flags().StringVar(&whose.rule, "rule", "", "a rule of the configuration, by its name, or its place where it has none")
	a.completeDevices(command)
	completeFlag(command, "job", a.fromState(offerJobs))
	completeFlag(command, "user", a.fromState(offerUsers))
	completeFlag(command, "cgroup", a.fromState(offerCgroups))
	completeFlag(command, "rule", a.fromState(offerRules))
	return a.jsonFlag(command)
}

// limitRequest reads whose limits change, and how. Device, user, rule and a job that is named come later.
func limitRequest(args []string, whose limited) (ipc.LimitRequest, error) {
	request := ipc.LimitRequest{Target: ipc.LimitDevice, Device: ipc.AllDevices}
	named := 0
	for target, given := range map[uint32]bool{ipc.LimitJob: whose.ofJob, ipc.LimitUser: whose.user != "", ipc.LimitCgroup: whose.cgroup != "", ipc.LimitRule: whose.rule != ""} {
		if given {
			request.Target = target
			named++
		}
	}
	if whose.ofJob {
		id, err := strconv.ParseUint(whose.job, 10, 63)
		if err != nil && ipc.CheckName(whose.job) != nil {
			return request, fmt.Errorf("--job: %q is neither the number nor the name of a job; `gpuarb jobs` shows both", whose.job)
		}
		request.ID = id // 0: by name, which comes later
	}
	if len(args) > 0 && !strings.Contains(args[0], "=") {
		pid, err := strconv.ParseUint(args[0], 10, 31)
		if err != nil || pid == 0 {
			return request, fmt.Errorf("%q is no PID and no LIMIT=VALUE", args[0])
		}
		request.Target, request.ID = ipc.LimitProcess, pid
		args = args[1:]
		named++
	}
	if named > 1 || named == 0 && whose.device == "" {
		return request, errWhose
	}
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		if err := setLimit(&request, name, value); err != nil {
			return request, err
		}
	}
	return request, nil
}

// limitNames are the limits that a target has.
func limitNames(target uint32) []string {
	switch target {
	case ipc.LimitDevice:
		return []string{"slots.max"}
	case ipc.LimitCgroup:
		return []string{"memory.max"}
	case ipc.LimitUser, ipc.LimitRule:
		return []string{"memory.max", "streams.max"}
	}
	return []string{"memory.max", "memory.min", "streams.max"}
}

func setLimit(request *ipc.LimitRequest, name, value string) error {
	names := limitNames(request.Target)
	if !slices.Contains(names, name) {
		what := map[uint32]string{ipc.LimitDevice: "a device", ipc.LimitUser: "a user", ipc.LimitCgroup: "a cgroup", ipc.LimitRule: "a rule"}[request.Target]
		are := "are"
		if len(names) == 1 {
			are = "is"
		}
		return fmt.Errorf("%q is no limit of %s; there %s %s", name, cmp.Or(what, "a process or job"), are, andList(names))
	}
	if err := shim.SetLimit(request, name, value); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// andList joins names: "a, b and c".
func andList(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

func (a *app) limit(request ipc.LimitRequest, whose limited) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	defer a.slow(theDaemon)()
	client, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	if whose.device+whose.user+whose.rule != "" || whose.ofJob && request.ID == 0 {
		snapshot, err := snapshotOf(ctx, client)
		if err != nil {
			return err
		}
		if err := whose.resolve(snapshot, &request); err != nil {
			return err
		}
	}
	if request.Set == 0 {
		return a.showLimits(ctx, client, request, whose)
	}
	set := func() error { return client.SetLimit(ctx, request) }
	if request.Target == ipc.LimitCgroup {
		set = func() error { return client.SetCgroupLimit(ctx, whose.cgroup, request) }
	}
	if err := set(); err != nil {
		return &exitError{exitFailed, explainCall(client.Path(), err)}
	}
	if request.Set&ipc.SetMax != 0 {
		a.sayOver(ctx, client, request, whose)
	}
	return nil
}

// limitsOf are the limits in force for whom a request names.
func limitsOf(s accounting.Snapshot, request ipc.LimitRequest, whose limited) ([]report.Limit, error) {
	limits, ok := []report.Limit(nil), true
	unknown := fmt.Errorf("process %d is no client of this daemon (any more); `gpuarb ps` lists those that hold something", request.ID)
	switch request.Target {
	case ipc.LimitDevice:
		limits = report.DeviceLimits(s, int(request.Device))
	case ipc.LimitUser:
		limits = report.UserLimits(s, uint32(request.ID))
	case ipc.LimitCgroup:
		limits = report.CgroupLimits(s, whose.cgroup)
	case ipc.LimitRule:
		limits, ok = report.RuleLimits(s, request.ID)
		unknown = noRule(s, whose.rule)
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
func (a *app) showLimits(ctx context.Context, client *ipc.Client, request ipc.LimitRequest, whose limited) error {
	snapshot, err := snapshotOf(ctx, client)
	if err != nil {
		return err
	}
	limits, err := limitsOf(snapshot, request, whose)
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
func (a *app) sayOver(ctx context.Context, client *ipc.Client, request ipc.LimitRequest, whose limited) {
	snapshot, err := snapshotOf(ctx, client)
	if err != nil {
		return // the change is made all the same
	}
	limits, err := limitsOf(snapshot, request, whose)
	if err != nil {
		return
	}
	who, frees := fmt.Sprintf("process %d holds", request.ID), "it frees"
	switch request.Target {
	case ipc.LimitJob:
		who = fmt.Sprintf("job %d holds", request.ID)
	case ipc.LimitUser:
		who, frees = fmt.Sprintf("the programs of user %s hold", whose.user), "they free"
	case ipc.LimitCgroup:
		who, frees = fmt.Sprintf("the programs in cgroup %s hold", whose.cgroup), "they free"
	case ipc.LimitRule:
		who, frees = fmt.Sprintf("programs under rule %s hold", whose.rule), "they free"
	}
	for _, l := range limits {
		if l.Name == "memory.max" && l.Value != nil && l.Held > *l.Value {
			held := accounting.Bytes(l.Held)
			a.say("%s %s on %s: over until %s %s", who, held.Human(), calledIn(snapshot, l.Device), frees, held.Less(accounting.Bytes(*l.Value)).Human())
		}
	}
}
