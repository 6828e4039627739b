package main

// This file has `gpuarb enable`, `disable` and `status`. Package preload changes the files of the
// machine.

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/cmd/gpuarb/preload"
	"github.com/gpuarb/gpuarb/shim"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// targetOptions are the flags of enable and disable, which say whose programs are meant.
type targetOptions struct {
	unit, user, group string
	all, now          bool
	root              string
}

func (o *targetOptions) addTo(flags *pflag.FlagSet) {
	flags.StringVar(&o.unit, "unit", "", "a service of systemd's")
	flags.StringVar(&o.group, "group", "", "the sessions of all members of this group")
	flags.StringVar(&o.user, "user", "", "the sessions of this user")
	flags.BoolVar(&o.all, "all", false, "every program of the machine (/etc/ld.so.preload, and GPUARB_VULKAN=1 for sessions and services)")
	flags.BoolVar(&o.now, "now", false, "restart the service, if it runs")
	flags.StringVar(&o.root, "root", "/", "the system below this folder, as with systemctl --root")
}

// target returns the target that the flags name.
func (o *targetOptions) target(flags *pflag.FlagSet) (preload.Target, error) {
	var none, found preload.Target
	for kind, name := range map[preload.Kind]string{preload.Unit: o.unit, preload.Group: o.group, preload.User: o.user, preload.All: ""} {
		if !flags.Changed(string(kind)) || kind == preload.All && !o.all {
			continue
		}
		if found != none {
			return none, errors.New("one of --unit, --group, --user and --all at a time")
		}
		target, err := preload.NewTarget(kind, name)
		if err != nil {
			return none, fmt.Errorf("--%s: %w", kind, err)
		}
		found = target
	}
	if found == none {
		return none, errors.New("say whose programs: --unit NAME, --group NAME, --user NAME or --all")
	}
	if o.now && (found.Kind != preload.Unit || o.root != "/") {
		return none, errors.New("--now restarts a service of this machine: it goes with --unit, and without --root")
	}
	return found, nil
}

// systemAt returns the system below the folder root. If doing is not empty, the command with that
// name changes the system, which only root may do.
func (a *app) systemAt(root, doing string) (preload.Machine, error) {
	path, err := filepath.Abs(root)
	if err == nil {
		_, err = os.Stat(filepath.Join(path, "etc"))
	}
	if err != nil {
		return preload.Machine{}, fmt.Errorf("--root: %w", err)
	}
	if doing != "" && os.Getuid() != 0 {
		return preload.Machine{}, fail(exitFailed, "only root may do this, because it changes how other people's programs start: sudo gpuarb %s", doing)
	}
	return preload.Machine{Root: path, Timeout: 30 * time.Second}, nil
}

func (a *app) enableCommand() *cobra.Command {
	var options targetOptions
	var memory string
	var noExports bool
	command := &cobra.Command{
		Use:   "enable --unit NAME | --group NAME | --user NAME | --all",
		Short: "put programs that nobody starts with gpuarb run under gpuarb, for good",
		Long: `Has programs start with gpuarb's library, so that the rules of the configuration hold for
them: those of a service (a drop-in for its unit), of the sessions of a user or of a group
(lines for PAM), or all programs (/etc/ld.so.preload). A small program is started so before
and after anything is written; where it fails, nothing is changed. What runs already stays
as it is: restart the service (--now), log in again. gpuarb disable takes it back,
gpuarb status lists it.`,
		Args: argumentCount(0, 0),
		RunE: func(command *cobra.Command, _ []string) error {
			return a.enable(command.Flags(), &options, memory, noExports)
		},
	}
	options.addTo(command.Flags())
	command.Flags().BoolVar(&noExports, noExportsFlag, false, "use the library without exported driver functions, as gpuarb run --no-exports does")
	command.Flags().StringVar(&memory, "memory", "", "the most that each program takes (GPUARB_MEMORY); the rules may give less")
	return command
}

func (a *app) enable(flags *pflag.FlagSet, options *targetOptions, memory string, noExports bool) error {
	target, err := options.target(flags)
	if err != nil {
		return err
	}
	if flags.Changed("memory") {
		if _, err := accounting.ParseSize(memory); err != nil {
			return fmt.Errorf("--memory: %w", err)
		}
		if target.Kind == preload.All {
			return errors.New("--memory does not go with --all, which gives programs no environment: write a rule (memory.max) in the configuration")
		}
	}
	machine, err := a.systemAt(options.root, "enable …")
	if err != nil {
		return err
	}
	library, err := a.libraryOn(machine, noExports)
	if err != nil {
		return &exitError{exitFailed, err}
	}
	if err := machine.Enable(target, library, strings.TrimSpace(memory)); err != nil {
		return &exitError{exitFailed, err}
	}
	if options.now {
		if err := machine.Restart(target, library); err != nil {
			return &exitError{exitFailed, err}
		}
	}
	return a.printf("enabled: %v%s\n", target, afterwards(machine, target, options.now))
}

// libraryOn returns the path of the library as programs of the machine name it.
func (a *app) libraryOn(machine preload.Machine, noExports bool) (string, error) {
	if machine.Here() {
		library, err := a.libraryFor(noExports)
		if err != nil {
			return "", err
		}
		return filepath.EvalSymlinks(library)
	}
	paths := shim.LibraryPaths("/usr/bin/gpuarb", func(string) string { return "" })
	for i := range paths {
		if noExports {
			paths[i] = shim.OtherBuild(paths[i])
		}
	}
	for _, path := range paths {
		if shim.CheckLibrary(filepath.Join(machine.Root, path)) == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("gpuarb is not installed in %s (looked for %s)", machine.Root, strings.Join(paths, ", "))
}

// afterwards says when a change takes effect, because programs that run already keep their state.
func afterwards(machine preload.Machine, target preload.Target, restarted bool) string {
	switch {
	case !machine.Here() || restarted:
		return ""
	case target.Kind == preload.Unit:
		return "; takes effect when the service is next started (systemctl restart " + target.Name + ")"
	case target.Kind == preload.All:
		return " programs; takes effect for each when it is next started"
	}
	return "; takes effect with the next login"
}

func (a *app) disableCommand() *cobra.Command {
	var options targetOptions
	command := &cobra.Command{
		Use:   "disable --unit NAME | --group NAME | --user NAME | --all",
		Short: "take back what gpuarb enable did",
		Long: `Takes out what gpuarb enable wrote, to the byte. What others have changed in those files stays.
What runs already keeps the library until it is restarted.`,
		Args: argumentCount(0, 0),
		RunE: func(command *cobra.Command, _ []string) error {
			return a.disable(command.Flags(), &options)
		},
	}
	options.addTo(command.Flags())
	return command
}

func (a *app) disable(flags *pflag.FlagSet, options *targetOptions) error {
	target, err := options.target(flags)
	if err != nil {
		return err
	}
	machine, err := a.systemAt(options.root, "disable …")
	if err != nil {
		return err
	}
	found, err := machine.Disable(target)
	if err == nil && found && options.now {
		err = machine.Restart(target, "")
	}
	switch {
	case err != nil:
		return &exitError{exitFailed, err}
	case !found:
		return fail(exitFailed, "%v was not enabled; `gpuarb status` lists what is", target)
	}
	return a.printf("disabled: %v%s\n", target, afterwards(machine, target, options.now))
}

func (a *app) statusCommand() *cobra.Command {
	var root string
	command := a.jsonFlag(&cobra.Command{
		Use:   "status",
		Short: "list what gpuarb enable has put under gpuarb, and what of it runs so",
		Args:  argumentCount(0, 0),
		RunE:  func(*cobra.Command, []string) error { return a.status(root) },
	})
	command.Flags().StringVar(&root, "root", "/", "the system below this folder")
	return command
}

func (a *app) status(root string) error {
	machine, err := a.systemAt(root, "")
	if err != nil {
		return err
	}
	entries, err := machine.Entries()
	if err != nil {
		return &exitError{exitFailed, err}
	}
	machine.Count(entries)
	return a.show(statusRows(entries), func(w io.Writer) error {
		if len(entries) == 0 {
			_, err := fmt.Fprintln(w, "Nothing is enabled: only programs under `gpuarb run` are held to limits. See gpuarb help enable.")
			return err
		}
		table := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
		fmt.Fprintln(table, "KIND\tNAME\tMEMORY\tUNDER GPUARB\tFILE")
		for _, e := range entries {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", e.Kind, cmp.Or(e.Name, "-"), cmp.Or(e.Memory, "-"), e.State(), e.File)
		}
		return table.Flush()
	})
}
