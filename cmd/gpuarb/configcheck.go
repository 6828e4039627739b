package main

// This file has `gpuarb config` and its command `check`. configdiff.go has the command `diff`.
// Package config finds the mistakes.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/gpuarb/gpuarb/internal/config"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

func (a *app) configCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "config",
		Short: "check the configuration, or compare it with what is in force",
		Args:  cobra.ArbitraryArgs,
		RunE:  wantsSubcommand,
	}
	command.AddCommand(a.jsonFlag(&cobra.Command{
		Use:   "check [FILE]",
		Short: "print every mistake in the configuration, with its file and line",
		Long: "Checks FILE and the conf.d/*.toml beside it (without FILE those of the daemon that answers, and where\n" +
			"none does " + config.DefaultPath + "), and warns of what is allowed and cannot be meant:\n" +
			"a rule that is never used, a user or group that does not exist, a size that looks as if its unit was\n" +
			"forgotten. Nothing is changed. Where a daemon answers, the devices of the machine are known too.",
		Args:              argumentCount(0, 1),
		ValidArgsFunction: once(tomlFiles),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.configCheck(strings.Join(args, ""), len(args) > 0)
		},
	}), a.configDiffCommand())
	return command
}

// checkResult is the output of `gpuarb config check --json`.
type checkResult struct {
	OK       bool            `json:"ok"`
	Files    []string        `json:"files"`
	Mistakes []configMistake `json:"mistakes"`
	Warnings []configMistake `json:"warnings"` // about settings that are allowed, but probably wrong
}

type configMistake struct {
	File   string `json:"file"`
	Line   *int   `json:"line"` // null: the whole file
	Reason string `json:"reason"`
}

// mistakesOf returns mistakes in the form of the JSON output.
func mistakesOf(all config.Mistakes) []configMistake {
	list := make([]configMistake, len(all))
	for i, m := range all {
		if list[i] = (configMistake{File: m.File, Reason: m.Reason}); m.Line != 0 {
			list[i].Line = &m.Line
		}
	}
	return list
}

func (a *app) configCheck(path string, named bool) error {
	if named && path == "" {
		return errors.New("config check: the file's name is empty")
	}
	machine, state := a.knownMachine()
	switch {
	case named:
	case state != nil:
		path = state.Config.Path
	default:
		a.say("no daemon answers that could say which file it reads: %s is looked at", config.DefaultPath)
	}
	loaded, warnings, err := config.Check(path, machine)
	var mistakes config.Mistakes
	if err != nil && !errors.As(err, &mistakes) {
		return &exitError{exitConfig, err}
	}
	result := checkResult{OK: err == nil, Files: []string{}, Mistakes: mistakesOf(mistakes), Warnings: mistakesOf(warnings)}
	if loaded != nil {
		result.Files = append(result.Files, loaded.Files...)
	}
	err = a.show(result, func(w io.Writer) error {
		if result.OK {
			a.sayWarnings(warnings)
			fmt.Fprintf(w, "%s: no mistakes\n", cmp.Or(strings.Join(result.Files, ", "), "no file at "+config.DefaultPath+" (built-in defaults)"))
		} else {
			a.sayMistakes(mistakes)
		}
		return nil
	})
	if err == nil && !result.OK {
		return &exitError{code: exitConfig}
	}
	return err
}

// sayMistakes prints the mistakes on stderr. Each line begins with file and line, as editors expect
// from a compiler.
func (a *app) sayMistakes(mistakes config.Mistakes) {
	fmt.Fprintln(os.Stderr, printable(mistakes.Error()))
	a.say("%s in the configuration", report.Count(len(mistakes), "mistake"))
}

func (a *app) sayWarnings(warnings config.Mistakes) {
	for _, w := range warnings {
		w.Reason = "warning: " + w.Reason
		fmt.Fprintln(os.Stderr, printable(w.Error()))
	}
}

// knownMachine returns the users, groups and devices of this machine, without any message to the
// user. The devices, and the state of the daemon, are known only if a daemon answers.
func (a *app) knownMachine() (config.Machine, *figures.Snapshot) {
	m := config.Machine{User: inDatabase("passwd"), Group: inDatabase("group"), Program: isProgram}
	ctx, cancel := context.WithTimeout(context.Background(), daemonTimeout)
	defer cancel()
	snapshot, err := a.quietSnapshot(ctx)
	if err != nil {
		return m, nil
	}
	for _, d := range snapshot.Devices {
		m.Devices = append(m.Devices, ruleDevice(d))
	}
	return m, &snapshot
}

// isProgram reports whether a file may be executed.
func isProgram(path string) bool { return unix.Access(path, unix.X_OK) == nil }

// inDatabase returns a function that reports whether getent finds a name. getent asks directory
// services too. The function is nil if the machine has no getent.
func inDatabase(database string) func(name string) bool {
	getent, err := exec.LookPath("getent")
	if err != nil {
		return nil
	}
	return func(name string) bool {
		err := exec.Command(getent, "--", database, name).Run()
		missing, ended := err.(*exec.ExitError)
		return err == nil || !ended || missing.ExitCode() != notInDatabase
	}
}

// notInDatabase is the exit code of getent for a name that it does not find.
const notInDatabase = 2
