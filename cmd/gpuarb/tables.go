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
)

// tableCommand makes a command that prints a table in the units that its flags choose. Without such
// a flag, amounts are rounded for users if rounded is true or stdout is a terminal. Otherwise they
// have the units of the files under /gpu.
func (a *app) tableCommand(command *cobra.Command, rounded bool, show func(report.Style) error) *cobra.Command {
	var human, bytes bool
	command.Args = argumentCount(0, 0)
	command.Flags().BoolVarP(&human, "human", "h", false, "round amounts and times: 3.5GiB, 5min (as on a terminal)")
	command.Flags().BoolVar(&bytes, "bytes", false, "print amounts in bytes, and times in seconds")
	command.Flags().Bool("help", false, "help for "+command.Name()) // defined here, because -h is --human
	command.MarkFlagsMutuallyExclusive("human", "bytes")
	command.RunE = func(*cobra.Command, []string) error {
		style := report.Style{Width: terminalWidth()}
		style.Human = human || !bytes && (rounded || style.Width > 0)
		return show(style)
	}
	return a.jsonFlag(command)
}

// showTable prints the state of the daemon, as JSON or as a table.
func (a *app) showTable(table, json func(io.Writer, figures.Snapshot) error) error {
	snapshot, err := a.snapshot()
	switch {
	case err != nil:
		return err
	case a.json:
		return json(os.Stdout, snapshot)
	}
	return table(os.Stdout, snapshot)
}

func (a *app) psCommand() *cobra.Command {
	return a.tableCommand(&cobra.Command{
		Use:   "ps",
		Short: "show the programs that use a GPU, one line per lease and per claim",
		Long: `Shows the programs that use a GPU: one line per lease, as /gpu/leases, and one for each program
that has a GPU as a whole (gpuarb claim, gpuarb run --exclusive) and uses nothing of it yet. Where
programs share budgets, a second table shows those, as /gpu/budgets.`,
	}, false, func(style report.Style) error {
		return a.showTable(func(w io.Writer, s figures.Snapshot) error {
			if err := style.Programs(w, s); err != nil || len(s.Budgets) == 0 {
				return err
			}
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
			return style.Budgets(w, s)
		}, report.LeasesJSON)
	})
}

func (a *app) jobsCommand() *cobra.Command {
	return a.tableCommand(&cobra.Command{
		Use:   "jobs",
		Short: "show who holds what, and who waits for what, one line per job and GPU",
		Long: `Shows every job with what it holds of each GPU (a lease: memory, contexts or streams in use; a
reservation: memory.min; a slot; a claim; the GPU exclusively), since when, and what it waits for. Programs
that use a GPU without gpuarb are listed as unmanaged.`,
	}, true, func(style report.Style) error { return a.showTable(style.Holders, report.HoldersJSON) })
}

func (a *app) devicesCommand() *cobra.Command {
	return a.tableCommand(&cobra.Command{
		Use:   "devices",
		Short: "show the GPUs, and the processor where OpenCL or Vulkan computes on it; how much of each is taken, and who has one as a whole",
	}, true, a.devices)
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
