package main

// This file has the parts of the manual page gpuarbd(8) that the flags do not describe. main.go
// calls writeShare during the build; package manual writes the page.

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/gpuarb/gpuarb/internal/config"
	"github.com/gpuarb/gpuarb/internal/manual"
)

// shareFlag is the flag that the build uses (target share of the Makefile). It writes the manual
// page and completions that are installed.
const shareFlag = "write-share"

func writeShare(cmd *cobra.Command, folder string) error {
	book := manual.Book{
		Root: cmd, Chapter: 8, Date: manual.Date(os.Getenv), See: []string{"gpuarb(1)", "gpuarb.toml(5)", "gpuarb-files(5)"},
		Sections: sections(),
	}
	return book.Write(folder)
}

// sections returns the parts of the manual page that the flags do not say: signals, exit codes and
// files.
func sections() []manual.Section {
	return []manual.Section{
		{Title: "SIGNALS", Items: []manual.Item{
			{Word: "HUP", Meaning: "Reads the configuration again; if it has mistakes, the one in force stays."},
			{Word: "TERM, INT", Meaning: "Stops. Programs keep running, and the next daemon takes them over."},
		}},
		{Title: "EXIT STATUS", Items: []manual.Item{
			{Word: "0", Meaning: "It was told to stop, or `--check-config` found nothing."},
			{Word: "1", Meaning: "It could not start, or could not go on."},
			{Word: "2", Meaning: "The command line is wrong."},
			{Word: "78", Meaning: "The configuration has mistakes, and there is no earlier one to start with, or `--check-config` was given."},
		}},
		{Title: "FILES", Items: []manual.Item{
			{Word: config.DefaultPath, Meaning: "The configuration, with conf.d/*.toml beside it."},
			{Word: "/gpu", Meaning: "The daemon's state, as files."},
			{Word: "/run/gpuarb", Meaning: "The daemon's socket, and a record of what it has granted, for the next daemon."},
		}},
	}
}
