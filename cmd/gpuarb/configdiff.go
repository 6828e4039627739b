package main

// This file has `gpuarb config diff`: it compares what the daemon has in force with the
// configuration files. Package config compares the keys of two files; liveDiff compares limits that
// were changed live.

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/config"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/spf13/cobra"
)

// difference is an entry of the output of `gpuarb config diff --json`: a key or a limit.
type difference struct {
	Kind    string  `json:"kind"` // differsLive or differsFile
	Part    string  `json:"part"`
	Key     string  `json:"key"`
	Device  *int    `json:"device"`
	InForce *string `json:"in_force"` // spelled as in a file
	InFiles *string `json:"in_files"`
	By      *string `json:"set_by"`
}

// The kinds of a difference.
const (
	differsLive = "live" // a user changed the limit while programs run
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
		Args:              argumentCount(0, 1),
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
	found = append(found, diffLive(snapshot, loaded)...)
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

// diffLive returns the limits that users changed live and that differ from the files now.
func diffLive(s figures.Snapshot, loaded *config.Config) []difference {
	l := &liveDiff{state: s, files: config.Parts(loaded.String())}
	l.addRules()
	l.addUsers()
	l.addDevices(loaded)
	return l.all
}

// liveDiff collects the differences between the state of the daemon and the files.
type liveDiff struct {
	state figures.Snapshot
	files []config.Part
	all   []difference
}

func (l *liveDiff) add(part, key string, device *int, inForce, inFiles, by string) {
	if inForce != cmp.Or(inFiles, noLimit) {
		l.all = append(l.all, difference{differsLive, part, key, device, report.Unless(inForce, ""), report.Unless(inFiles, ""), &by})
	}
}

// addMemory adds a memory.max if its amount differs. Two spellings of the same amount do not
// differ.
func (l *liveDiff) addMemory(part string, device int, inForce accounting.Bytes, inFiles, by string) {
	if inForce != amountOf(inFiles, l.state.Devices, device) {
		l.add(part, "memory.max", &device, sizeInFile(inForce), inFiles, by)
	}
}

func (l *liveDiff) addRules() {
	defaults := config.Named(l.files, "defaults")
	inForce := slices.DeleteFunc(config.Parts(l.state.Config.Text), func(p config.Part) bool { return !p.Is("rule") })
	for i, r := range l.state.Rules {
		if i >= len(inForce) {
			break
		}
		name := inForce[i].Name
		rule := config.Named(l.files, name)
		for _, d := range r.Devices {
			if d.MaxBy != "" && d.MaxBy != r.Title {
				l.addMemory(name, d.Device, d.Max, cmp.Or(rule.Value("memory.max"), defaults.Value("memory.max")), d.MaxBy)
			}
		}
		if r.StreamsBy != "" && r.StreamsBy != r.Title {
			l.add(name, "streams.max", nil, strconv.Itoa(r.Streams), cmp.Or(rule.Value("streams.max"), defaults.Value("streams.max")), r.StreamsBy)
		}
	}
}

func (l *liveDiff) addUsers() {
	for _, b := range l.state.Budgets {
		if b.Rule != "" || b.Scope != "user" {
			continue
		}
		for _, d := range b.Devices {
			if d.MaxBy != "" {
				l.addMemory(b.Name, d.Device, d.Max, "", d.MaxBy)
			}
		}
		if b.StreamsBy != "" {
			l.add(b.Name, "streams.max", nil, countInFile(b.Streams), "", b.StreamsBy)
		}
	}
}

func (l *liveDiff) addDevices(loaded *config.Config) {
	for _, d := range l.state.Devices {
		if d.SlotsBy == "" || d.SlotsBy == "the configuration" {
			continue
		}
		inFiles := ""
		if n := loaded.Policy.ForDevice(ruleDevice(d)).SlotsMax; n > 0 {
			inFiles = countInFile(n)
		}
		l.add(deviceName(d.Index), "slots.max", &d.Index, countInFile(d.SlotsMax), inFiles, d.SlotsBy)
	}
}

func deviceName(index int) string { return "device " + strconv.Itoa(index) }

func sizeInFile(n accounting.Bytes) string { return `"` + accounting.Absolute(n).WithUnit() + `"` }

// noLimit is the value in a file for no limit.
const noLimit = `"max"`

func countInFile(n int) string {
	if n == 0 {
		return noLimit
	}
	return strconv.Itoa(n)
}

// amountOf returns the bytes of a size in a file on a device. An empty size means no limit.
func amountOf(inFile string, devices []figures.DeviceState, index int) accounting.Bytes {
	size, err := accounting.ParseSize(strings.Trim(cmp.Or(inFile, noLimit), `"`))
	i := slices.IndexFunc(devices, func(d figures.DeviceState) bool { return d.Index == index })
	if err != nil || i < 0 {
		return accounting.Max
	}
	return rules.Bounds{Total: devices[i].Total}.Amount(size)
}
