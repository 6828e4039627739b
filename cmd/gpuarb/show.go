package main

import (
	"encoding/json"
	"fmt"

	"github.com/gpuarb/gpuarb/report"
	"github.com/gpuarb/gpuarb/version"
	"github.com/spf13/cobra"
)

// printJSON prints a value, indented, with a newline at the end.
func (a *app) printJSON(v any) error {
	encoder := json.NewEncoder(a.stdout)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

func (a *app) psCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "ps",
		Short: "show who holds what, one line per lease, as /gpu/leases; below it the budgets that several share, as /gpu/budgets",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			snapshot, err := a.snapshot()
			switch {
			case err != nil:
				return err
			case a.json:
				return report.LeasesJSON(a.stdout, snapshot)
			}
			if err := report.Leases(a.stdout, snapshot); err != nil || len(snapshot.Budgets) == 0 {
				return err
			}
			if _, err := fmt.Fprintln(a.stdout); err != nil {
				return err
			}
			return report.Budgets(a.stdout, snapshot)
		},
	})
}

func (a *app) devicesCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "devices",
		Short: "show the GPUs, and how much of each is taken",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return a.devices() },
	})
}

func (a *app) devices() error {
	snapshot, err := a.snapshot()
	if err != nil {
		return err
	}
	if a.json {
		if snapshot.Devices == nil {
			_, err = fmt.Fprintln(a.stdout, "[]")
		} else {
			err = a.printJSON(snapshot.Devices)
		}
	} else if len(snapshot.Devices) > 0 {
		err = report.Devices(a.stdout, snapshot)
	}
	if err == nil && len(snapshot.Devices) == 0 {
		return fail(exitUnavailable, "no device: the daemon knows no GPU on this machine; `gpuarb doctor` says why")
	}
	return err
}

// versions is what `gpuarb version --json` prints.
type versions struct {
	Client string  `json:"client"`
	Daemon *string `json:"daemon"` // null when none answers
}

func (a *app) versionCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "version",
		Short: "show the versions of this program and of the daemon",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return a.version() },
	})
}

func (a *app) version() error {
	found := versions{Client: version.Version}
	snapshot, err := a.snapshot()
	if err == nil {
		found.Daemon = &snapshot.Version
	}
	if a.json {
		return a.printJSON(found)
	}
	daemon := "none answers"
	if err == nil {
		daemon = snapshot.Version
	}
	_, err = fmt.Fprintf(a.stdout, "gpuarb %s\ngpuarbd %s\n", found.Client, daemon)
	return err
}
