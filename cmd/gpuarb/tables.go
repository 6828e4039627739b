package main

// This file has the commands that print the state of the daemon as a table: ps, jobs, devices, and
// version. Package report writes the tables.

import (
	"cmp"
	"fmt"
	"io"
	"os"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/gpuarb/gpuarb/internal/version"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// tableCommand makes a command that prints a table.
func (a *app) tableCommand(command *cobra.Command, show func(report.Style) error) *cobra.Command {
	style := styleFlags(command)
	command.Args = argumentCount(0, 0)
	command.RunE = func(*cobra.Command, []string) error { return show(style()) }
	return a.jsonFlag(command)
}

// styleFlags adds --bytes to a command that prints a table, and returns a function that reads it.
// Amounts and times are rounded for people, on a terminal and elsewhere; --bytes prints them as the
// files below /gpu have them. --human, which asked for rounded amounts, is still accepted.
func styleFlags(command *cobra.Command) func() report.Style {
	flags := command.Flags()
	bytes := flags.Bool("bytes", false, "print amounts in bytes, and times in seconds, instead of rounding them (3.5GiB, 5min)")
	flags.Bool("human", true, "round amounts and times")
	command.MarkFlagsMutuallyExclusive("human", "bytes")
	hide(flags, "human")
	return func() report.Style { return report.Style{Width: terminalWidth(), Human: !*bytes} }
}

// hide leaves a flag out of the help. The flag exists.
func hide(flags *pflag.FlagSet, name string) {
	if err := flags.MarkHidden(name); err != nil {
		panic(err)
	}
}

// jsonOf returns how a table is printed as JSON.
type jsonOf func(report.Style, io.Writer, figures.Snapshot) error

// showTable prints the state of the daemon, as JSON or as a table.
func (a *app) showTable(style report.Style, rows *rowFlags, table func(report.Style, io.Writer, figures.Snapshot) error, json jsonOf) error {
	if err := rows.check(); err != nil {
		return err
	}
	snapshot, err := a.snapshot()
	if err == nil {
		style.Selection, err = rows.selection(snapshot)
	}
	switch {
	case err != nil:
		return err
	case a.json:
		return json(style, os.Stdout, snapshot)
	}
	return table(style, os.Stdout, snapshot)
}

func (a *app) psCommand() *cobra.Command {
	rows := &rowFlags{columns: report.LeaseColumns()}
	command := a.tableCommand(&cobra.Command{
		Use:   "ps",
		Short: "show the programs that use a GPU, one line per lease and per claim",
		Long: `Shows the programs that use a GPU: one line per lease, as /gpu/leases, and one for each program
that has a GPU as a whole (gpuarb claim, gpuarb run --exclusive) and uses nothing of it yet. Where
programs share budgets, a second table shows those, as /gpu/budgets.`,
	}, func(style report.Style) error {
		return a.showTable(style, rows, func(style report.Style, w io.Writer, s figures.Snapshot) error {
			if err := style.Programs(w, s); err != nil || !style.HasBudgets(s) {
				return err
			}
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
			return style.Budgets(w, s)
		}, report.Style.LeasesJSON)
	})
	return a.addRowFlags(command, rows)
}

func (a *app) jobsCommand() *cobra.Command {
	rows := &rowFlags{columns: report.HolderColumns()}
	command := a.tableCommand(&cobra.Command{
		Use:   "jobs",
		Short: "show who holds what, and who waits for what, one line per job and GPU",
		Long: `Shows every job with what it holds of each GPU (a lease: memory, contexts or streams in use; a
reservation: memory.min; a slot; a claim; the GPU exclusively), since when, and what it waits for. Programs
that use a GPU without gpuarb are listed as unmanaged.`,
	}, func(style report.Style) error {
		return a.showTable(style, rows, report.Style.Holders, report.Style.HoldersJSON)
	})
	return a.addRowFlags(command, rows)
}

func (a *app) devicesCommand() *cobra.Command {
	return a.tableCommand(&cobra.Command{
		Use:   "devices",
		Short: "show the GPUs, and the processor where OpenCL or Vulkan computes on it; how much of each is taken, and who has one as a whole",
	}, a.devices)
}

func (a *app) devices(style report.Style) error {
	snapshot, err := a.snapshot()
	if err != nil {
		return err
	}
	if a.json {
		err = report.DevicesJSON(os.Stdout, snapshot)
	} else if len(snapshot.Devices) > 0 {
		err = style.Devices(os.Stdout, snapshot)
	}
	if err == nil && len(figures.GPUs(snapshot.Devices)) == 0 {
		return errNoDevice
	}
	return err
}

// versions is the output of `gpuarb version --json`.
type versions struct {
	Client string  `json:"client"`
	Daemon *string `json:"daemon"` // null: no daemon answers
}

func (a *app) versionCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "version",
		Short: "show the versions of this program and of the daemon",
		Args:  argumentCount(0, 0),
		RunE:  func(*cobra.Command, []string) error { return a.version() },
	})
}

func (a *app) version() error {
	found := versions{Client: version.Version}
	snapshot, err := a.snapshot()
	if err == nil {
		found.Daemon = &snapshot.Version
	}
	return a.show(found, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "gpuarb %s\ngpuarbd %s\n", found.Client, cmp.Or(snapshot.Version, "none answers"))
		return err
	})
}
