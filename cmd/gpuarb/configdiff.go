package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/config"
	"github.com/gpuarb/gpuarb/report"
	"github.com/spf13/cobra"
)

// difference is what `gpuarb config diff --json` prints of a key or limit that is not in force as the files have it.
type difference struct {
	Kind    string  `json:"kind"` // differsLive or differsFile
	Part    string  `json:"part"`
	Key     string  `json:"key"`
	Device  *int    `json:"device"`
	InForce *string `json:"in_force"` // spelled as in a file
	InFiles *string `json:"in_files"`
	By      *string `json:"set_by"`
}

// How something differs.
const (
	differsLive = "live" // somebody changed it while programs run
	differsFile = "file" // the files were changed, and not read again
)

func (a *app) configDiffCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:   "diff [FILE]",
		Short: "show what in force differs from the configuration files",
		Long: `Shows the differences between the configuration files and what is in force: keys that were changed in
the files and not read again (systemctl reload gpuarbd), and limits of rules, users and devices that were
changed live (gpuarb limit, or a write below /gpu). gpuarb limit shows the limits of single processes
and jobs. FILE is compared instead of the files that the daemon read. The exit status is 0 when nothing
differs and 1 when something does, as with diff(1).`,
		Args:              takes(0, 1),
		ValidArgsFunction: once(tomlFiles),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.configDiff(args)
		},
	})
}

func (a *app) configDiff(args []string) error {
	snapshot, err := a.snapshot()
	if err != nil {
		return err
	}
	path := snapshot.Config.Path
	if len(args) > 0 {
		if path = args[0]; path == "" {
			return errors.New("config diff: the file's name is empty")
		}
	}
	if snapshot.Config.Text == "" {
		return fail(exitFailed, "the daemon is older than this gpuarb, and does not say which configuration is in force")
	}
	loaded, err := config.Load(path)
	if err != nil {
		return &exitError{exitConfig, err}
	}
	found := []difference{}
	for _, d := range config.Differences(snapshot.Config.Text, loaded.String()) {
		found = append(found, difference{Kind: differsFile, Part: d.Part, Key: d.Key, InForce: report.Unless(d.Old, ""), InFiles: report.Unless(d.Fresh, "")})
	}
	found = append(found, liveDifferences(snapshot, config.Parts(loaded.String()))...)
	err = a.show(found, func(w io.Writer) error {
		for _, d := range found {
			fmt.Fprintln(w, d)
		}
		return nil
	})
	if err == nil && len(found) > 0 {
		return &exitError{code: exitFailed}
	}
	return err
}

func (d difference) String() string {
	where := d.Part + ": " + d.Key
	if d.Device != nil && d.Part != deviceName(*d.Device) {
		where += fmt.Sprintf(" on device %d", *d.Device)
	}
	why := "; not read again yet"
	if d.Kind == differsLive {
		why = "; set by " + *d.By
	}
	return fmt.Sprintf("%s: in force %s, in the files %s%s", where, orNothing(d.InForce), orNothing(d.InFiles), why)
}

func orNothing(value *string) string {
	if value == nil {
		return "nothing"
	}
	return *value
}

// liveDifferences are the limits that somebody changed of what the configuration gives.
func liveDifferences(s accounting.Snapshot, files []config.Part) (all []difference) {
	defaults := config.Named(files, "defaults")
	add := func(part, key string, device *int, inForce, inFiles, by string) {
		all = append(all, difference{differsLive, part, key, device, report.Unless(inForce, ""), report.Unless(inFiles, ""), &by})
	}
	inForce := config.Parts(s.Config.Text)
	inForce = slices.DeleteFunc(inForce, func(p config.Part) bool { return !p.Is("rule") })
	for i, r := range s.Rules {
		if i >= len(inForce) {
			break
		}
		name := inForce[i].Name
		rule := config.Named(files, name)
		for _, d := range r.Devices {
			if d.MaxBy != "" && d.MaxBy != r.Title {
				add(name, "memory.max", &d.Device, sizeInFile(d.Max), cmp.Or(rule.Value("memory.max"), defaults.Value("memory.max")), d.MaxBy)
			}
		}
		if r.StreamsBy != "" && r.StreamsBy != r.Title {
			add(name, "streams.max", nil, strconv.Itoa(r.Streams), cmp.Or(rule.Value("streams.max"), defaults.Value("streams.max")), r.StreamsBy)
		}
	}
	for _, b := range s.Budgets {
		if b.Rule != "" || b.Scope != "user" {
			continue
		}
		for _, d := range b.Devices {
			if d.MaxBy != "" {
				add(b.Name, "memory.max", &d.Device, sizeInFile(d.Max), "", d.MaxBy)
			}
		}
		if b.StreamsBy != "" {
			add(b.Name, "streams.max", nil, strconv.Itoa(b.Streams), "", b.StreamsBy)
		}
	}
	for _, d := range s.Devices {
		if d.SlotsBy != "" && d.SlotsBy != "the configuration" {
			add(deviceName(d.Index), "slots.max", &d.Index, cmp.Or(nonzero(d.SlotsMax), `"max"`), "", d.SlotsBy)
		}
	}
	return all
}

func deviceName(index int) string { return "device " + strconv.Itoa(index) }

func sizeInFile(n accounting.Bytes) string { return `"` + accounting.Absolute(n).WithUnit() + `"` }

func nonzero(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}
