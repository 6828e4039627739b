package main

// This file reports command lines that do not fit: unknown commands, and wrong numbers of
// arguments. It also has `gpuarb help`.

import (
	"fmt"
	"strings"

	"github.com/gpuarb/gpuarb/internal/config"
	"github.com/spf13/cobra"
)

// unknownCommand returns the error for an unknown command below parent, with commands of similar
// names.
func unknownCommand(parent *cobra.Command, name string) error {
	var known []string
	for _, c := range parent.Commands() {
		if c.IsAvailableCommand() || c.Name() == "help" {
			known = append(known, c.Name())
		}
	}
	path := strings.TrimPrefix(parent.CommandPath()+" ", parent.Root().Name()+" ")
	text := fmt.Sprintf("unknown command %q", path+name)
	if near := config.Near(name, known); len(near) > 0 {
		text += fmt.Sprintf(": did you mean %s%s?", path, strings.Join(near, " or "+path))
	}
	return fmt.Errorf("%s", text)
}

// wantsSubcommand fails because the command does nothing without a subcommand.
func wantsSubcommand(command *cobra.Command, args []string) error {
	if len(args) > 0 {
		return unknownCommand(command, args[0])
	}
	var known []string
	for _, c := range command.Commands() {
		known = append(known, command.Name()+" "+c.Name())
	}
	return fmt.Errorf("%s: say what to do: %s", command.Name(), strings.Join(known, ", "))
}

// argumentCount returns a check of the number of arguments, with an error in plain words. most is
// 0, 1 or any larger number, which means no upper limit.
func argumentCount(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case most == 0 && len(args) > 0 && c.HasSubCommands():
			return unknownCommand(c, args[0])
		case most == 0 && len(args) > 0:
			return fmt.Errorf("%s takes no arguments, and was given %q", c.CommandPath(), args[0])
		case len(args) > most:
			return fmt.Errorf("%s takes one argument at most, and was given %d", c.CommandPath(), len(args))
		case len(args) < least:
			return fmt.Errorf("%s needs an argument: %s", c.CommandPath(), c.UseLine())
		}
		return nil
	}
}

// helpCommand returns `gpuarb help`, which fails if the command does not exist.
func (a *app) helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "show what a command does, and its flags",
		Args:  cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			command := root
			for _, name := range args {
				next, _, err := command.Find([]string{name})
				if err != nil || next == command {
					return unknownCommand(command, name)
				}
				command = next
			}
			command.InitDefaultHelpFlag()
			return command.Help()
		},
	}
}
