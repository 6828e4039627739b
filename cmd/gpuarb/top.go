package main

// This file has `gpuarb top`: it reads the flags and the environment, and starts package top.
// topdaemon.go has the connection to the daemon.

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/colorprofile"
	"github.com/gpuarb/gpuarb/cmd/gpuarb/top"
	"github.com/gpuarb/gpuarb/internal/config"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

const (
	pipeWidth     = 120                    // columns of `gpuarb top --once` if no terminal has another width
	shortInterval = 100 * time.Millisecond // shortest value of --interval
)

func (a *app) topCommand() *cobra.Command {
	options := top.Options{}
	var once bool
	command := &cobra.Command{
		Use:   "top",
		Short: "watch devices and leases on the terminal, and change limits, cancel tickets or send signals there",
		Long: `Shows the devices with bars and a history of the last minutes, and below them the leases, as a table
or as a tree of jobs. ? lists the keys. Every change asks for confirmation first.

NO_COLOR turns colours off; in a locale that is not UTF-8 only ASCII is drawn. --once prints the
screen once, with all its rows, for a pipe or a file; with --compact each device has one line, and
the output has as many lines as LINES says: watch gpuarb top --once --compact`,
		Args: argumentCount(0, 0),
		RunE: func(command *cobra.Command, _ []string) error {
			if options.Sort != "" && !slices.Contains(top.SortKeys(), options.Sort) {
				return fail(exitUsage, "--sort: there is no %q; there are %s", options.Sort, config.AndList(top.SortKeys()))
			}
			if options.Interval < shortInterval {
				return fail(exitUsage, "--interval: must be %v or longer", shortInterval)
			}
			options.UID, options.ASCII, options.Suspend = uint32(os.Getuid()), !isUTF8(), underShell()
			if once {
				return a.topOnce(options)
			}
			if !command.Flags().Changed("interval") {
				options.Spent = spentSoFar
			}
			return a.top(options)
		},
	}
	flags := command.Flags()
	flags.BoolVarP(&once, "once", "1", false, "print the screen once, and end")
	flags.BoolVar(&options.Compact, "compact", false, "one line for each device, and no graph")
	flags.BoolVar(&options.Tree, "tree", false, "show jobs with their leases below them")
	flags.StringVar(&options.Filter, "filter", "", "show only rows with this text in user, command, job, state or PID")
	flags.StringVar(&options.Sort, "sort", "used", "sort by "+strings.Join(top.SortKeys(), ", "))
	flags.DurationVar(&options.Interval, "interval", time.Second, "time between two updates; without this flag it grows when updates take more than 2 % of a core")
	completeFlag(command, "sort", cobra.FixedCompletions(top.SortKeys(), cobra.ShellCompDirectiveNoFileComp))
	return command
}

// isUTF8 reports whether the character encoding of the locale is UTF-8.
func isUTF8() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if value := strings.ToLower(os.Getenv(name)); value != "" {
			return strings.Contains(value, "utf-8") || strings.Contains(value, "utf8")
		}
	}
	return false
}

// colours returns the environment for the terminal library. The library takes NO_COLOR for a
// boolean, but by no-color.org any text turns colours off.
func (a *app) colours() []string {
	if os.Getenv("NO_COLOR") == "" {
		return os.Environ()
	}
	return append(os.Environ(), "NO_COLOR=1")
}

// underShell reports whether a shell with job control has started this process: its parent is in
// the same session, and in another process group. Without such a shell, as under `ssh host gpuarb
// top`, the group is orphaned, and the kernel discards SIGTSTP. The terminal library would then
// wait for ever to be resumed.
func underShell() bool {
	session, err := unix.Getsid(os.Getppid())
	if err != nil {
		return false
	}
	group, err := unix.Getpgid(os.Getppid())
	own, _ := unix.Getsid(0) // cannot fail for the process itself
	return err == nil && session == own && group != unix.Getpgrp()
}

// spentSoFar returns the processor time that this process has used.
func spentSoFar() time.Duration {
	var usage unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &usage) // cannot fail
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// topOnce prints the screen once.
func (a *app) topOnce(options top.Options) error {
	snapshot, err := a.snapshot()
	if err != nil {
		return err
	}
	width := cmp.Or(terminalWidth(), cells(os.Getenv("COLUMNS")), pipeWidth) // watch(1) sets COLUMNS
	height := 0
	if options.Compact {
		height = cells(os.Getenv("LINES"))
	}
	return top.Once(colorprofile.NewWriter(os.Stdout, a.colours()), snapshot, options, width, height)
}

// top shows the screen until the user leaves it.
func (a *app) top(options top.Options) error {
	if terminalWidth() == 0 || !isTerminal(os.Stdin) || slices.Contains([]string{"", "dumb"}, os.Getenv("TERM")) {
		return fail(exitUsage, "top needs a terminal that it can draw on; `gpuarb top --once` prints the same once, `watch gpuarb top --once --compact` again and again")
	}
	ctx, cancel := context.WithTimeout(context.Background(), daemonTimeout)
	defer cancel()
	client, err := a.dial(ctx) // without a daemon the screen would be of no use
	if err != nil {
		return err
	}
	_ = client.Close()
	if err := top.Run(newTopDaemon(client.Path()), options, a.colours()); err != nil {
		return fmt.Errorf("the terminal: %w", err)
	}
	return nil
}
