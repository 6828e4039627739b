package main

// This file has the flags that choose the rows of a table, and their order: --user, --device, --idle
// and --sort of ps, jobs and queue. Package report carries them out.

import (
	"slices"
	"strings"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// rowFlags are the flags of a command that choose rows.
type rowFlags struct {
	columns []string // columns by which the table can be sorted
	waits   bool     // the rows are waiting requests

	user, device, idle, sort string
	flags                    *pflag.FlagSet
}

// addRowFlags adds the flags to a command, and their completion.
func (a *app) addRowFlags(command *cobra.Command, r *rowFlags) *cobra.Command {
	r.flags = command.Flags()
	idle := "only what has done nothing on the GPU for at least this time, as 30m, 1h or 2d"
	if r.waits {
		idle = "only what has waited for at least this time, as 30m, 1h or 2d"
	}
	r.flags.StringVar(&r.user, "user", "", "only programs of this user, by name or number")
	r.flags.StringVar(&r.device, "device", "", "only this device, or these, as 0 or 0,1: index, UUID, beginning of a UUID, or PCI address; cpu is the processor")
	r.flags.StringVar(&r.idle, "idle", "", idle)
	r.flags.StringVar(&r.sort, "sort", "", "sort by a column: "+strings.Join(r.columns, ", ")+"; amounts and times the largest first, with - in front (-used) the other way round")
	completeFlag(command, "user", a.fromState(offerUsers))
	completeFlag(command, "sort", cobra.FixedCompletions(r.columns, cobra.ShellCompDirectiveNoFileComp))
	a.completeDevices(command)
	return command
}

// check refuses values that are wrong whatever the daemon says. An empty value often comes from a
// variable that is not set. Without the flag all rows are shown, so the value is refused.
func (r *rowFlags) check() error {
	for _, name := range []string{"user", "device", "idle", "sort"} {
		if f := r.flags.Lookup(name); f.Changed && strings.TrimSpace(f.Value.String()) == "" {
			return fail(exitUsage, "--%s: it is empty; without it, all rows are shown", name)
		}
	}
	if r.idle != "" {
		if _, err := parseAge(r.idle); err != nil {
			return fail(exitUsage, "--idle: %w", err)
		}
	}
	if by := strings.ToLower(strings.TrimPrefix(r.sort, "-")); r.sort != "" && !slices.Contains(r.columns, by) {
		return fail(exitUsage, "--sort: there is no column %q; there are %s", r.sort, strings.Join(r.columns, ", "))
	}
	return nil
}

// selection looks up the user and the devices that the flags name.
func (r *rowFlags) selection(s figures.Snapshot) (sel report.Selection, err error) {
	sel.Sort = r.sort
	if r.user != "" {
		uid, err := findUser(s, r.user)
		if err != nil {
			return sel, err
		}
		sel.UID = new(uint32(uid))
	}
	if r.device != "" {
		chosen, err := namedDevices(s.Devices, r.device)
		if err != nil {
			return sel, fail(exitUnavailable, "--device: %w", err)
		}
		for _, d := range chosen {
			sel.Devices = append(sel.Devices, d.Index)
		}
	}
	if r.idle != "" {
		age, err := parseAge(r.idle)
		if err != nil {
			return sel, fail(exitUsage, "--idle: %w", err)
		}
		sel.IdleMs = max(1, age.Milliseconds())
	}
	return sel, nil
}
