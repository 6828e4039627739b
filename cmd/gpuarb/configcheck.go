package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gpuarb/gpuarb/config"
	"github.com/spf13/cobra"
)

func (a *app) configCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "config",
		Short: "check the configuration",
		Args:  cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("unknown command %q", "config "+args[0])
			}
			return errors.New("config: say what to do: config check")
		},
	}
	command.AddCommand(a.jsonFlag(&cobra.Command{
		Use:   "check [FILE]",
		Short: "print every mistake in the configuration, with its file and line",
		Long: "Checks FILE (" + config.DefaultPath + " if none is given) and the conf.d/*.toml beside it.\n" +
			"Nothing is changed, and no daemon is needed.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.configCheck(strings.Join(args, ""), len(args) > 0)
		},
	}))
	return command
}

// checkResult is what `gpuarb config check --json` prints.
type checkResult struct {
	OK       bool            `json:"ok"`
	Files    []string        `json:"files"`
	Mistakes []configMistake `json:"mistakes"`
}

type configMistake struct {
	File   string `json:"file"`
	Line   int    `json:"line"` // 0: the whole file
	Reason string `json:"reason"`
}

func (a *app) configCheck(path string, named bool) error {
	if named && path == "" {
		return errors.New("config check: the file's name is empty")
	}
	loaded, err := config.Load(path)
	var mistakes config.Mistakes
	if err != nil && !errors.As(err, &mistakes) {
		return &exitError{exitConfig, err}
	}
	result := checkResult{OK: err == nil, Files: []string{}, Mistakes: []configMistake{}}
	if loaded != nil {
		result.Files = append(result.Files, loaded.Files...)
	}
	for _, m := range mistakes {
		result.Mistakes = append(result.Mistakes, configMistake{m.File, m.Line, m.Reason})
	}
	if a.json {
		err = a.printJSON(result)
	} else {
		err = a.printCheck(result, mistakes)
	}
	if err == nil && !result.OK {
		return &exitError{code: exitConfig}
	}
	return err
}

// printCheck prints the mistakes on stderr, each line beginning with file and line, as
// compilers do and editors expect.
func (a *app) printCheck(result checkResult, mistakes config.Mistakes) error {
	if !result.OK {
		fmt.Fprintln(a.stderr, mistakes.Error())
		noun := "mistakes"
		if len(mistakes) == 1 {
			noun = "mistake"
		}
		a.say("%d %s in the configuration", len(mistakes), noun)
		return nil
	}
	files := strings.Join(result.Files, ", ")
	if files == "" {
		files = "no file (built-in defaults)"
	}
	_, err := fmt.Fprintf(a.stdout, "%s: no mistakes\n", files)
	return err
}
