package main

// This file has `gpuarb limit`: it reads the command line, sends the change to the daemon, and
// shows limits. limittarget.go has what limits there are, and how a name on the command line is
// looked up.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/config"
	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/shim"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func (a *app) limitCommand() *cobra.Command {
	var style func() report.Style
	command := &cobra.Command{
		Use:   "limit {PID | --job ID | --job NAME | --user NAME | --cgroup PATH | --rule NAME | --device N} [LIMIT=VALUE…]",
		Short: "show limits and what set them, or change them while programs run",
		Long: `Changes limits of a process or a job (memory.max, memory.min, streams.max; with
--device on that device alone), of all programs of a user together (memory.max; streams.max
of each), of all programs in a cgroup and those below it together (memory.max; only root may),
of what a rule gives (memory.max, streams.max), or of a device (slots.max). Your own you may
lower, and raise again up to what the rules of the configuration, or root, gave; root may do
anything. A user's or a cgroup's limit stays until it is taken off (memory.max=max), also when
the daemon or the programs are started again, and when a service's cgroup is made
again; with --with-folder a cgroup's ends with the folder that the cgroup has now, as for a
container. A rule's stays until the configuration is read again (systemctl reload gpuarbd).
What is lowered below what is held takes nothing away: nothing new is granted until enough
was freed. The daemon logs each change (journalctl -u gpuarbd): who, whose, from what to what.

With --dry-run it changes nothing, and says who would be over the new limit, and by how much. Every user may ask that.

Without LIMIT=VALUE it shows the limits in force, and which rule, flag or user set each.

Sizes: 4G, 4GiB, 4096M, bytes, 25% (of each device), max. K, M and G are binary.`,
		Example: "  gpuarb limit 4242\n  gpuarb limit 4242 memory.max=2G\n  gpuarb limit --user ann memory.max=6G\n  gpuarb limit --cgroup /system.slice/llama.service memory.max=12G\n  gpuarb limit --device 0 slots.max=1",
		Args:    cobra.ArbitraryArgs,

		ValidArgsFunction: a.completeLimit,
		RunE: func(command *cobra.Command, args []string) error {
			whose, err := readLimited(command.Flags(), args)
			if err != nil {
				return &exitError{exitUsage, err}
			}
			return a.ask(func(ctx context.Context, client *ipc.Client) error { return a.limit(ctx, client, whose, style()) })
		},
	}
	style = styleFlags(command)
	for _, t := range limitKinds {
		if t.flag != "" {
			command.Flags().String(t.flag, "", t.usage)
		}
		if t.offers != nil {
			completeFlag(command, t.flag, a.fromState(t.offers))
		}
	}
	command.Flags().Bool(withFolder, false, "with --cgroup: the limit ends when the cgroup's folder is removed; without the flag it stays, also for a cgroup that is made again at the path")
	command.Flags().Bool(dryRunFlag, false, "change nothing, and say who would be over the limit")
	a.completeDevices(command)
	return a.jsonFlag(command)
}

// completeLimit completes the arguments of limit. If no flag says whose limit it is, the first
// argument is a PID. The others are the limits that are not on the command line yet.
func (a *app) completeLimit(command *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if strings.Contains(begun, "=") {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	kind, flags := ipc.LimitProcess, command.Flags()
	for _, t := range limitKinds {
		if t.kind != ipc.LimitDevice && flags.Changed(t.flag) {
			kind = t.kind
		}
	}
	var all []cobra.Completion
	if kind == ipc.LimitProcess && len(args) == 0 {
		all, _ = a.fromState(offerProcesses)(command, args, begun)
		if !flags.Changed("device") {
			return all, cobra.ShellCompDirectiveNoFileComp
		}
		kind = ipc.LimitDevice // limits of the device, unless a PID follows
	}
	for _, name := range limitKindOf(kind).limits {
		if !slices.ContainsFunc(args, func(given string) bool { return strings.HasPrefix(given, name+"=") }) {
			all = append(all, cobra.CompletionWithDesc(name+"=", limitMeanings[name]))
		}
	}
	return all, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// limitMeanings say what each limit means.
var limitMeanings = map[string]string{
	"memory.max": "the most memory: 4G, 25%, max", "memory.min": "what is reserved of that: 4G, 25%",
	"streams.max": "the most streams of a process", "slots.max": "how many jobs may have work there at once",
}

// dryRunFlag is the flag that changes nothing.
const dryRunFlag = "dry-run"

// withFolder is the flag for a limit that ends when the folder of its cgroup is removed.
const withFolder = "with-folder"

// readLimited reads from the command line the target whose limits are shown or changed, and the new
// limits. limitTarget.resolve looks the names up later.
func readLimited(flags *pflag.FlagSet, args []string) (*limitTarget, error) {
	w := &limitTarget{limitKind: limitKindOf(ipc.LimitDevice), request: ipc.LimitRequest{Device: ipc.AllDevices}}
	w.device, _ = flags.GetString(w.flag)
	named := 0
	for i, t := range limitKinds {
		// An empty name counts as no name, except for a job, where it is an error.
		if name, _ := flags.GetString(t.flag); t.kind != ipc.LimitDevice && (name != "" || t.kind == ipc.LimitJob && flags.Changed(t.flag)) {
			w.limitKind, w.name = &limitKinds[i], name
			named++
		}
	}
	if w.kind == ipc.LimitJob {
		w.name = ipc.BindingName(w.name) // `gpuarb job open` shortens long names like this
		id, err := strconv.ParseUint(w.name, 10, 63)
		if err != nil && ipc.CheckBindingName(w.name) != nil {
			return nil, fmt.Errorf("--job: %q is neither the number nor the name of a job; `gpuarb jobs` shows both", w.name)
		}
		w.request.ID = id // 0: resolve looks the name up
	}
	if w.kind == ipc.LimitCgroup && w.name != "/" { // the root contains all programs: it has no limit, but its usage can be shown
		if err := rules.CheckCgroup(w.name); err != nil {
			return nil, fmt.Errorf("--cgroup: %w", err)
		}
	}
	if len(args) > 0 && !strings.Contains(args[0], "=") {
		pid, err := strconv.ParseUint(args[0], 10, 31)
		if err != nil || pid == 0 {
			return nil, fmt.Errorf("%q is no PID and no LIMIT=VALUE", args[0])
		}
		w.limitKind, w.request.ID = limitKindOf(ipc.LimitProcess), pid
		args = args[1:]
		named++
	}
	if named > 1 || named == 0 && w.device == "" {
		return nil, errors.New("whose? Give a PID, --job, --user, --cgroup, --rule or --device")
	}
	w.request.Target = w.kind
	w.dryRun, _ = flags.GetBool(dryRunFlag)
	if with, _ := flags.GetBool(withFolder); with {
		if w.kind != ipc.LimitCgroup || len(args) == 0 {
			return nil, errors.New("--" + withFolder + " goes with a memory.max of a cgroup: gpuarb limit --cgroup PATH --" + withFolder + " memory.max=4G")
		}
		w.request.Set |= ipc.SetWithFolder
	}
	given := map[string]bool{}
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		if given[name] {
			return nil, fmt.Errorf("%s is given twice: give the value that you mean", name)
		}
		given[name] = true
		if err := setLimit(&w.request, name, value); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func setLimit(request *ipc.LimitRequest, name, value string) error {
	t := limitKindOf(request.Target)
	if !slices.Contains(t.limits, name) {
		are := "are"
		if len(t.limits) == 1 {
			are = "is"
		}
		return fmt.Errorf("%q is no limit of %s; there %s %s", name, t.noun, are, config.AndList(t.limits))
	}
	if err := shim.SetLimit(request, name, value); err != nil {
		orMax := ""
		if name == "slots.max" || name == "streams.max" && request.Target == ipc.LimitUser {
			orMax = ", and not max"
		}
		return fmt.Errorf("%s: %w%s", name, err, orMax)
	}
	return nil
}

func (a *app) limit(ctx context.Context, client *ipc.Client, w *limitTarget, style report.Style) error {
	if err := w.resolve(ctx, client); err != nil {
		return err
	}
	switch {
	case w.request.Set&^ipc.SetWithFolder == 0 && w.dryRun:
		return fail(exitUsage, "--%s: say which limit would be set: gpuarb limit --user ann memory.max=6G --%s", dryRunFlag, dryRunFlag)
	case w.request.Set == 0:
		return a.showLimits(ctx, client, w, style)
	case w.dryRun:
		s, err := snapshotOf(ctx, client)
		if err != nil {
			return err
		}
		return a.dryRun(s, w)
	}
	set := func() error { return client.SetLimit(ctx, w.request) }
	if w.kind == ipc.LimitCgroup {
		set = func() error { return client.SetCgroupLimit(ctx, w.name, w.request) }
	}
	if err := set(); err != nil {
		return &exitError{exitFailed, explainCall(client.Path(), err)}
	}
	if w.request.Set&ipc.SetMax != 0 {
		a.sayEffect(ctx, client, w)
	}
	return nil
}

// showLimits prints the limits in force, and what set each.
func (a *app) showLimits(ctx context.Context, client *ipc.Client, w *limitTarget, style report.Style) error {
	s, limits, err := w.currentLimits(ctx, client)
	if err != nil {
		return err
	}
	a.sayConfigMistakes(s)
	if !slices.ContainsFunc(limits, report.Limit.Limits) && !a.json {
		a.say("no limit is set and nothing is reserved: the table is empty")
	}
	return a.show(limits, func(to io.Writer) error { return style.Limits(to, limits) })
}

// sayEffect says which other limit is in force instead of the limit that was just set, and which
// targets hold more memory than that.
func (a *app) sayEffect(ctx context.Context, client *ipc.Client, w *limitTarget) {
	snapshot, limits, err := w.currentLimits(ctx, client)
	if err != nil {
		return // the limit is set already, so this failure needs no message
	}
	a.sayNoEffect(snapshot, limits, w)
	who := w.name
	if w.kind == ipc.LimitProcess || w.kind == ipc.LimitJob {
		who = strconv.FormatUint(w.request.ID, 10)
	}
	for _, l := range limits {
		if l.Name == "memory.max" && l.Value != nil && l.Held > *l.Value {
			held := accounting.Bytes(l.Held)
			limit := accounting.Bytes(*l.Value)
			a.say("%s %s of a limit of %s on %s: nothing new until %s are freed", fmt.Sprintf(w.holds, who), held.Human(), limit.Human(),
				snapshot.Called(int(l.Device)), held.Less(limit).Human())
		}
	}
}
