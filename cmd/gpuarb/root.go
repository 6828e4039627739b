package main

// This file carries out a command line: it finds the command, runs it, and turns its error into a
// message and an exit code. main calls run. Each command is in a file of its own.

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/gpuarb/gpuarb/internal/version"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// run carries out a command line, and returns the exit code.
func (a *app) run(args []string) int {
	root := a.rootCommand()
	if command, rest, err := root.Find(args); err == nil && command.Flags().Lookup(waitFlag) != nil {
		args = append(strings.Fields(command.CommandPath())[1:], joinWait(command.Flags(), rest)...)
	}
	root.SetArgs(args)
	var help bytes.Buffer // a buffer, because cobra ignores errors of writing its text
	root.SetOut(&help)
	root.SetErr(os.Stderr)
	command, err := root.ExecuteC()
	if err == nil {
		_, err = help.WriteTo(os.Stdout)
	}
	if err == nil {
		return exitOK
	}
	var exit *exitError
	var output *os.PathError
	failed, usage := exitFailed, exitUsage
	if command.Name() == runName { // the other codes of run are those of the program
		failed, usage = exitRunFailed, exitRunFailed
	}
	switch {
	case errors.As(err, &output) && output.Path == os.Stdout.Name():
		exit = &exitError{failed, fmt.Errorf("the output cannot be written: %w", output.Err)}
	case !errors.As(err, &exit): // error of cobra itself, about flags or arguments
		exit = &exitError{usage, fmt.Errorf("%w%s", explainFlag(err), see(command, err))}
	}
	if exit.err != nil {
		a.say("%v", exit.err)
	}
	return exit.code
}

// see refers to the help of a command whose command line is wrong.
func see(command *cobra.Command, err error) string {
	link := "; see"
	if strings.HasSuffix(err.Error(), "?") {
		link = " See"
	}
	if command.Name() == "help" {
		return link + " `gpuarb help`"
	}
	return fmt.Sprintf("%s `%s --help`", link, command.CommandPath())
}

// explainFlag says which values a flag takes, if the parser has only the error of strconv.
func explainFlag(err error) error {
	var flag *pflag.InvalidValueError
	var read *strconv.NumError
	if !errors.As(err, &flag) || !errors.As(err, &read) {
		return err
	}
	name, value := flag.GetFlag().Name, flag.GetValue()
	switch flag.GetFlag().Value.Type() {
	case "bool":
		return fmt.Errorf("--%s: %q is neither true nor false", name, value)
	case "uint64":
		return fmt.Errorf("--%s: %q is no number from 0 to %d", name, value, uint64(math.MaxUint64))
	}
	return fmt.Errorf("--%s: %q is no number from 1 to %d", name, value, math.MaxInt32) // a number of streams or a PID
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "gpuarb",
		Short:         "share the GPUs of one machine between programs",
		Long:          "gpuarb starts programs under budgets of GPU memory and streams, and shows who holds what.",
		Version:       version.Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(command *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(command, args[0])
			}
			return errors.New("no command given")
		},
	}
	root.PersistentFlags().StringVar(&a.socket, "socket", "", "the daemon's socket (otherwise GPUARB_SOCKET, the user's own daemon, the system's)")
	root.SetVersionTemplate("gpuarb {{.Version}}\n")
	root.AddCommand(
		a.runCommand(),
		a.psCommand(),
		a.topCommand(),
		a.jobsCommand(),
		a.whyCommand(),
		a.claimCommand(),
		a.jobCommand(),
		a.keeperCommand(),
		a.queueCommand(),
		a.devicesCommand(),
		a.eventsCommand(),
		a.limitCommand(),
		a.suspendCommand(),
		a.resumeCommand(),
		a.reportCommand(),
		a.historyCommand(),
		a.suggestCommand(),
		a.doctorCommand(),
		a.planCommand(),
		a.enableCommand(),
		a.disableCommand(),
		a.statusCommand(),
		a.cdiCommand(),
		a.metricsCommand(),
		a.configCommand(),
		a.versionCommand(),
	)
	root.AddCommand(a.shareCommand())
	root.SetHelpCommand(a.helpCommand(root))
	root.InitDefaultCompletionCmd()
	for _, command := range root.Commands() {
		if command.Name() == "completion" {
			command.Short = "print what makes a shell complete gpuarb's commands and flags"
			command.Args, command.RunE = cobra.ArbitraryArgs, wantsSubcommand
			for _, shell := range command.Commands() {
				shell.Args = argumentCount(0, 0)
			}
		}
	}
	return root
}
